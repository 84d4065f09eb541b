"""Runs one command inside a node, from outside it: with the image's pristine programs or with the node's own.

The request is JSON on descriptor 4, the command's standard streams are ours, the result is JSON on descriptor 3:
{"exitCode": n} | {"signal": "SIGKILL"}, with "timedOut" beside it, or {"error": "...", "isOff": bool}.

Pristine: the command sees a root folder of its own, made in a mount namespace of ours. /usr and what belongs to it come
from the image's read-only layers, and so do the settings that loaders and interpreters take from /etc; everything else
is the node's. No program, library or setting of the node is used, and every import is done before the node is entered.
"""
import errno
import json
import os
import select
import signal
import stat
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import mounts  # noqa: E402

RESULT, REQUEST = 3, 4
PROGRAM_FOLDERS = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32")
# Settings by which a loader or an interpreter can be made to run something else than the program that was asked for.
PRISTINE_SETTINGS = (
    "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "perl", "ssl/openssl.cnf",
    "pam.d/runuser", "pam.d/runuser-l",
)
DEVICES = ("null", "zero", "full", "random", "urandom")
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


def clone_node_root(namespaces):
    """A detached private clone of all that the node has mounted."""
    own = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    root = os.open("/", os.O_PATH | os.O_CLOEXEC)
    mounts.setns(namespaces["mnt"], "mount")
    try:
        fd = mounts.open_tree(-100, "/", mounts.OPEN_TREE_CLONE | mounts.AT_RECURSIVE)
    finally:
        mounts.setns(own, "mount")
        os.fchdir(root)
        os.chroot(".")
        os.close(own)
        os.close(root)
    mounts.set_attributes(fd, mounts.MountAttr(0, 0, mounts.MS_PRIVATE, 0), recursive=True)
    return fd


def bind(source, target):
    """Clones a tree without following a link at its end, and attaches it."""
    flags = mounts.OPEN_TREE_CLONE | mounts.AT_RECURSIVE | mounts.AT_SYMLINK_NOFOLLOW | mounts.AT_NO_AUTOMOUNT
    fd = mounts.open_tree(-100, source, flags)
    mounts.move_mount(fd, target)
    os.close(fd)


def bind_beneath(folder, path, target):
    """The same for a path below a folder that may lead through links of the node's making: none is followed."""
    source = mounts.open_beneath(folder, path, os.O_PATH)
    fd = mounts.open_tree(source, "", mounts.OPEN_TREE_CLONE | mounts.AT_RECURSIVE | mounts.AT_EMPTY_PATH)
    mounts.move_mount(fd, target)
    os.close(fd)
    os.close(source)


def is_folder(path):
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def copy_setting(source, target):
    """Copies a file, link or folder of the image; a folder hides the node's of the same name altogether."""
    status = os.lstat(source)
    if stat.S_ISDIR(status.st_mode):
        os.mkdir(target, 0o755)
        os.setxattr(target, "trusted.overlay.opaque", b"y")
        for name in os.listdir(source):
            copy_setting(os.path.join(source, name), os.path.join(target, name))
    elif stat.S_ISLNK(status.st_mode):
        os.symlink(os.readlink(source), target)
    elif stat.S_ISREG(status.st_mode):
        with open(source, "rb") as file, open(target, "wb") as copy:
            copy.write(file.read())
        os.chmod(target, stat.S_IMODE(status.st_mode))
    os.lchown(target, status.st_uid, status.st_gid)


def make_settings(image, folder, base):
    """The layer that stands on top of the node's /etc."""
    os.mkdir(folder, 0o755)
    os.chown(folder, base, base)
    names = list(PRISTINE_SETTINGS)
    names += [name for name in os.listdir(image + "/etc") if name.startswith("python3")]
    for name in names:
        source, target = os.path.join(image, "etc", name), os.path.join(folder, name)
        parent = os.path.dirname(target)
        if not os.path.isdir(parent):
            os.mkdir(parent, 0o755)
            os.chown(parent, base, base)
        if os.path.lexists(source):
            copy_setting(source, target)
        else:
            # A character device 0:0 is overlay's sign for "not there, whatever is below".
            os.mknod(target, stat.S_IFCHR, os.makedev(0, 0))
    preload = os.path.join(folder, "ld.so.preload")
    with open(preload, "w"):
        pass
    os.chown(preload, base, base)


def show_etc(root, node_root, settings, mountinfo):
    node_etc = root + "/.node/etc"
    os.mkdir(root + "/etc")
    if not is_folder(node_etc):
        bind(settings, root + "/etc")
        return
    mounts.mount("overlay", root + "/etc", "overlay", mounts.MS_RDONLY,
                 "lowerdir=%s:%s,metacopy=off,redirect_dir=nofollow" % (settings, node_etc))
    for line in mountinfo.splitlines():
        # An overlay does not show what is mounted inside its layers; the node's programs see it, so we do.
        point = line.split(" ")[4].encode().decode("unicode_escape")
        if not point.startswith("/etc/") or point[5:].split("/")[0].startswith("ld.so"):
            continue
        try:
            bind_beneath(node_root, point[1:], root + point)
        except OSError as error:
            # Gone, or covered, since the table was read; EXDEV and ELOOP: a link is in the way.
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.EINVAL, errno.ELOOP, errno.EXDEV):
                raise


def show_node(root, node_root, mountinfo, settings):
    """Everything of the node's own top level that the image does not replace."""
    node = root + "/.node"
    for name in os.listdir(node):
        source, target = os.path.join(node, name), os.path.join(root, name)
        if name in PROGRAM_FOLDERS or name in ("etc", "proc", "sys", ".node"):
            continue
        mode = os.lstat(source).st_mode
        if stat.S_ISDIR(mode):
            os.mkdir(target)
            bind(source, target)
        elif stat.S_ISLNK(mode):
            os.symlink(os.readlink(source), target)
        elif stat.S_ISREG(mode):
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o600))
            bind(source, target)
    show_etc(root, node_root, settings, mountinfo)
    for name in DEVICES:
        target = root + "/dev/" + name
        if os.path.lexists(target) and not os.path.islink(target) and not is_folder(target):
            bind("/dev/" + name, target)


def make_root(request, namespaces, mountinfo):
    """Builds the folder that becomes the command's root; returns its path and a descriptor of the node's own root."""
    mounts.private_mounts()
    scratch = request["scratch"]
    os.makedirs(scratch, exist_ok=True)
    mounts.mount("tmpfs", scratch, "tmpfs", 0, "mode=755")
    part = lambda name: os.path.join(scratch, name)  # noqa: E731
    for name in ("lowers", "image", "root"):
        os.mkdir(part(name), 0o755)
    base = request["base"]
    stack = mounts.attach_lowers(request["lowers"], base if request["idmapped"] else 0, part("lowers"))
    image = part("image")
    if ":" in stack:
        mounts.mount("overlay", image, "overlay", mounts.MS_RDONLY,
                     "lowerdir=%s,metacopy=off,redirect_dir=nofollow" % stack)
    else:
        image = stack
    root = part("root")
    mounts.mount("tmpfs", root, "tmpfs", 0, "mode=755")
    os.chown(root, base, base)
    for name in os.listdir(image):
        if name not in PROGRAM_FOLDERS:
            continue
        source, target = os.path.join(image, name), os.path.join(root, name)
        if os.path.islink(source):
            os.symlink(os.readlink(source), target)
            os.lchown(target, base, base)
        else:
            os.mkdir(target)
            bind(source, target)
    for name in (".node", "proc", "sys"):
        os.mkdir(os.path.join(root, name), 0o755)
    node_root = clone_node_root(namespaces)
    mounts.move_mount(node_root, root + "/.node")
    make_settings(image, part("settings"), base)
    show_node(root, node_root, mountinfo, part("settings"))
    keep_boot_id(node_root, part("boot_id"))
    read_only = mounts.MountAttr(mounts.MOUNT_ATTR_RDONLY, 0, 0, 0)
    mounts.set_attributes(node_root, read_only, recursive=True)
    return root, node_root


def keep_boot_id(node_root, path):
    """A copy of the boot's identity, which on the node is a mount of a file that has no name any more."""
    try:
        source = mounts.open_beneath(node_root, "proc/sys/kernel/random/boot_id", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        # Taken away on the node: then the command finds what the kernel says, which is the host's.
        return
    text = os.read(source, 64) if stat.S_ISREG(os.fstat(source).st_mode) else b""
    os.close(source)
    with open(path, "wb") as file:
        file.write(text)


def enter_root(root, node_root):
    """Kernel file systems of the node's namespaces, then the switch of root. Runs in the node's process namespace."""
    flags = mounts.MS_NOSUID | mounts.MS_NODEV | mounts.MS_NOEXEC
    mounts.mount("proc", root + "/proc", "proc", flags)
    mounts.mount("sysfs", root + "/sys", "sysfs", flags | mounts.MS_RDONLY)
    boot_id = root + "/../boot_id"
    if os.path.exists(boot_id):
        bind(boot_id, root + "/proc/sys/kernel/random/boot_id")
    try:
        bind_beneath(node_root, "sys/fs/cgroup", root + "/sys/fs/cgroup")
    except OSError as error:
        # Taken away on the node: then there is none to be shown.
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EXDEV):
            raise
    os.chdir(root)
    number = mounts.SYS_pivot_root[os.uname().machine]
    mounts.check(mounts.libc.syscall(number, b".", b"."), "pivot_root")
    mounts.umount(".")
    os.chdir("/")


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
        enter_root(*root)
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
    is_pristine = request["isPristine"]
    namespaces, mountinfo = open_namespaces(request["pid"], request["startTicks"])
    root = make_root(request, namespaces, mountinfo) if is_pristine else None
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
    except OSError as error:
        result = {"error": error.strerror or str(error), "errno": error.errno or 0, "isOff": False}
    os.write(RESULT, json.dumps(result).encode())


tell()
