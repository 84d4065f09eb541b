"""Control groups of version 2 for those who act under the fence: populated or not, killed at once, limited, removed."""
import errno
import os
import time

# As much as systemd's own default for a container; a fork bomb on a node must not take the host with it.
MAX_PROCESSES = 16384
GONE = (errno.ENOENT, errno.ENODEV)


def write(path, text):
    """Never makes the file: a group that is gone has none."""
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def is_populated(group):
    try:
        with open(os.path.join(group, "cgroup.events")) as file:
            return "populated 1" in file.read()
    except OSError as error:
        if error.errno in GONE:
            return False
        raise


def kill(group):
    """Everything in the group at once; not even a fork gets away (Linux 5.14)."""
    try:
        write(os.path.join(group, "cgroup.kill"), "1")
    except OSError as error:
        if error.errno not in GONE:
            raise


def empty(group, timeout_sec=10):
    """Kills the group. Returns whether it emptied."""
    kill(group)
    deadline = time.monotonic() + timeout_sec
    while is_populated(group):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.003)
    return True


def remove(group):
    """An empty group and those below it."""
    for folder, _names, _files in os.walk(group, topdown=False):
        try:
            os.rmdir(folder)
        except OSError as error:
            if error.errno not in GONE:
                raise


def pids(group):
    found = []
    for folder, _names, _files in os.walk(group):
        try:
            with open(os.path.join(folder, "cgroup.procs")) as file:
                found += [int(line) for line in file]
        except OSError as error:
            # Gone since we listed it, or a threaded group, whose processes its parent lists.
            if error.errno not in GONE + (errno.EOPNOTSUPP,):
                raise
    return found


def limit(paths, root):
    """Limits the processes of a node's groups, on the hierarchy that counts them. False where none can."""
    refusals = (errno.ENOENT, errno.EACCES, errno.EPERM, errno.EBUSY, errno.EOPNOTSUPP)
    for group in paths:
        try:
            if group.startswith(root + "/"):
                delegate(group, root)
            write(os.path.join(group, "pids.max"), str(MAX_PROCESSES))
            return True
        except OSError as error:
            if error.errno not in refusals:
                raise
    return False


def delegate(group, root):
    """Version 2 hands the counter down from group to group."""
    folder, below = root, os.path.relpath(os.path.dirname(group), root).split("/")
    for name in [""] + below:
        folder = os.path.join(folder, name) if name else folder
        write(os.path.join(folder, "cgroup.subtree_control"), "+pids")


def init_of(group):
    """(pid, start ticks) of the node's init: number 1 one process namespace below ours. None if there is none."""
    for pid in pids(os.path.join(group, "payload")):
        try:
            with open("/proc/%d/status" % pid) as file:
                status = dict(line.rstrip("\n").split(":", 1) for line in file if ":" in line)
            numbers = status.get("NSpid", "").split()
            if len(numbers) == 2 and numbers[1] == "1" and not status["State"].strip().startswith("Z"):
                return pid, start_ticks(pid)
        except (FileNotFoundError, ProcessLookupError):
            continue
    return None


def start_ticks(pid):
    with open("/proc/%d/stat" % pid) as file:
        return int(file.read().rsplit(")", 1)[1].split()[19])
