"""Runs one command inside a node, from outside it: with the image's pristine programs or with the node's own.

The request is JSON on descriptor 4, the command's standard streams are ours, the result is JSON on descriptor 3:
{"exitCode": n} | {"signal": "SIGKILL"}, with "timedOut" beside it, or {"error": "...", "isOff": bool}.

No program, library or setting of the node is used to run a pristine command (see pristine.py), and every import is done
before the node is entered.
"""
import errno
import json
import os
import select
import signal
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import fence  # noqa: E402
import mounts  # noqa: E402
import pristine  # noqa: E402

RESULT, REQUEST = 3, 4
PR_SET_PDEATHSIG = 1


class NodeOff(Exception):
    """The node's init is gone."""


class Stopped(Exception):
    """The controller wants the command to end."""


def open_namespaces(pid, start_ticks):
    """Descriptors of the namespaces of the node's init; proven to be that very process."""
    fds = {}
    try:
        for name in ("user", "mnt", "pid", "net", "uts", "ipc", "cgroup", "time"):
            path = "/proc/%d/ns/%s" % (pid, name)
            if os.path.exists(path) or name != "time":
                fds[name] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        with open("/proc/%d/mountinfo" % pid) as file:
            mountinfo = file.read()
        with open("/proc/%d/stat" % pid) as file:
            ticks = int(file.read().rsplit(")", 1)[1].split()[19])
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ESRCH):
            raise NodeOff() from error
        raise
    if ticks != start_ticks:
        raise NodeOff()
    return fds, mountinfo


def become(request, namespaces, root, procs):
    """In the child: into the node's namespaces, and the command. Does not return."""
    # From here on an import would run code of the node.
    sys.meta_path.clear()
    os.setsid()
    os.write(procs, b"0")
    for name in ("net", "uts", "ipc", "cgroup"):
        mounts.setns(namespaces[name], name)
    if root is None:
        mounts.setns(namespaces["mnt"], "mount")
        os.chdir("/")
    else:
        pristine.enter_root(*root)
    mounts.setns(namespaces["user"], "user")
    os.setgroups([])
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)
    os.umask(0o022)
    # Not before the change of owner, which would take it away again.
    mounts.libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    for number in range(1, 32):
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    execute(request["argv"], request["env"])


def execute(argv, env):
    """execvpe(3) without the imports of Python's own, which would now be looked for on the node."""
    if "/" in argv[0]:
        os.execve(argv[0], argv, env)
    refusal = OSError(errno.ENOENT, "%s: command not found" % argv[0])
    for folder in env.get("PATH", "").split(":"):
        try:
            os.execve(folder + "/" + argv[0], argv, env)
        except OSError as error:
            if error.errno == errno.EACCES:
                refusal = error
            elif error.errno not in (errno.ENOENT, errno.ENOTDIR):
                raise
    raise refusal


def start(request, namespaces, root, group):
    """Forks the command into the node; returns its pid. @raises OSError if it could not be executed."""
    told_read, told_write = os.pipe2(os.O_CLOEXEC)
    if "time" in namespaces:
        mounts.setns(namespaces["time"], "time")
    mounts.setns(namespaces["pid"], "process")
    try:
        pid = os.fork()
    except OSError as error:
        # The process namespace of a node whose init has ended takes no new process.
        raise NodeOff() from error
    if pid == 0:
        os.close(RESULT)
        try:
            become(request, namespaces, root, group.procs)
        except BaseException as error:
            os.write(told_write, json.dumps([getattr(error, "errno", 0) or 0, getattr(error, "strerror", "") or str(error)]).encode())
        finally:
            os._exit(127)
    os.close(told_write)
    told = os.read(told_read, 65536)
    if told:
        os.waitpid(pid, 0)
        number, text = json.loads(told)
        raise OSError(number, text)
    return pid


class Group:
    """A control group of the command's own, held by descriptors: the switch of root takes its path out of sight."""

    def __init__(self, path):
        self.parent = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.name = os.path.basename(path)
        os.mkdir(self.name, dir_fd=self.parent)
        self.folder = os.open(self.name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self.parent)
        self.procs = os.open("cgroup.procs", os.O_WRONLY | os.O_CLOEXEC, dir_fd=self.folder)

    def kill(self):
        fd = os.open("cgroup.kill", os.O_WRONLY | os.O_CLOEXEC, dir_fd=self.folder)
        os.write(fd, b"1")
        os.close(fd)

    def is_populated(self):
        fd = os.open("cgroup.events", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self.folder)
        try:
            return b"populated 1" in os.read(fd, 4096)
        finally:
            os.close(fd)

    def remove(self):
        """Waits until it is empty, and removes it. Killed processes need a moment."""
        for _ in range(400):
            try:
                os.rmdir(self.name, dir_fd=self.parent)
                return
            except OSError as error:
                if error.errno == errno.ENOENT:
                    return
                if error.errno != errno.EBUSY:
                    raise
            select.select([], [], [], 0.005)


def wait(pid, group, timeout_ms):
    """Waits for the command, ending its whole group at the time-out; returns the result."""
    watcher = os.pidfd_open(pid)
    timed_out = False
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        timed_out = not select.select([watcher], [], [], timeout_ms / 1000)[0]
        if timed_out:
            group.kill()
    except Stopped:
        group.kill()
    # Always reaped: an orphan of the host would stay in the node's process list.
    status = os.waitpid(pid, 0)[1]
    result = {"timedOut": timed_out}
    if os.WIFSIGNALED(status):
        result["signal"] = signal_name(os.WTERMSIG(status))
    else:
        result["exitCode"] = os.WEXITSTATUS(status)
    return result


def signal_name(number):
    try:
        return signal.Signals(number).name
    except ValueError:
        return "SIG%d" % number


def stop(_number, _frame):
    raise Stopped()


def main():
    with os.fdopen(REQUEST) as file:
        request = json.load(file)
    os.set_inheritable(RESULT, False)
    # Whoever wants the command ended is heard once it runs, in its group.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    signal.signal(signal.SIGTERM, stop)
    # Held until this process ends, and by nothing that it starts on the node.
    request["lock"] = fence.Fence(request["fence"], request["mark"]).enter(request["generation"])
    is_pristine = request["isPristine"]
    namespaces, mountinfo = open_namespaces(request["pid"], request["startTicks"])
    root = pristine.make_root(request, namespaces, mountinfo) if is_pristine else None
    group = Group(request["group"])
    try:
        result = wait(start(request, namespaces, root, group), group, request["timeoutMs"])
    finally:
        # A check leaves nothing running; what a set-up command started in the background stays, with its group.
        if is_pristine:
            group.kill()
        if is_pristine or not group.is_populated():
            group.remove()
    return result


def tell():
    try:
        result = main()
    except NodeOff:
        result = {"error": "the node has no running init", "isOff": True}
    except fence.FencedOff as error:
        result = {"error": str(error), "isOff": False, "isFenced": True}
    except OSError as error:
        result = {"error": error.strerror or str(error), "errno": error.errno or 0, "isOff": False}
    os.write(RESULT, json.dumps(result).encode())


tell()
