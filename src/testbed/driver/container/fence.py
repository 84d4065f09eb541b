"""The fence of a cluster: which generation of its lease has it, and a lock that everything holds which acts on it.

Its folder stays when the cluster goes. `generation` says "live N" (N has it) or "floor N" (there is no cluster, and only
N or later may make it). Who acts holds `lock` shared from before the check until the act is done; who takes the cluster
writes `generation`, kills what acts for an older one, and then gets `lock` exclusively: after that nothing older is in
flight. `guard` orders those who write `generation`. Every process that acts is marked by its environment,
INFRABED_CLUSTER=TAG-ID:GENERATION, so that it can be killed even while it is stopped.
"""
import errno
import fcntl
import os
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import groups  # noqa: E402

TIMEOUT_SEC = 15
FENCED_OFF = 76
MARK = b"INFRABED_CLUSTER="
GROUP = b"INFRABED_GROUP="


class FencedOff(Exception):
    """Another generation has the cluster, or it is gone."""


class Conflict(Exception):
    """The cluster exists already."""


class Stuck(Exception):
    """What an older generation began does not end."""


def write_atomic(path, text, mode=0o600):
    """A reader sees the old content or the new one, also after a power cut."""
    temporary = "%s.%d.new" % (path, os.getpid())
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        os.write(fd, text.encode())
        os.fsync(fd)
    finally:
        os.close(fd)
    os.rename(temporary, path)


def read_text(path):
    """The content, or "" where there is no such file."""
    try:
        with open(path) as file:
            return file.read()
    except FileNotFoundError:
        return ""


class Fence:
    def __init__(self, folder, mark):
        self.folder = folder
        # TAG-ID:, without the generation.
        self.mark = MARK + mark.encode() + b":"

    def path(self, name):
        return os.path.join(self.folder, name)

    def now(self):
        """("live" | "floor", N), or (None, 0) where nothing was ever made or fenced."""
        words = read_text(self.path("generation")).split()
        return (words[0], int(words[1])) if len(words) == 2 else (None, 0)

    def check(self, generation):
        state, number = self.now()
        if (state, number) == ("live", generation):
            return
        if state == "live":
            raise FencedOff("generation %d of the lease has the cluster, not %d" % (number, generation))
        raise FencedOff("the cluster of generation %d is gone" % generation)

    def enter(self, generation):
        """Takes the lock shared and checks. The lock is held until this process, or the descriptor returned, ends."""
        try:
            fd = os.open(self.path("lock"), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise FencedOff("the cluster of generation %d is gone" % generation) from None
        fcntl.flock(fd, fcntl.LOCK_SH)
        self.check(generation)
        return fd

    def acquire(self, name, below):
        """An exclusive lock; whoever holds it for a generation below is killed until they have let go."""
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        deadline = time.monotonic() + TIMEOUT_SEC
        pause = 0.002
        while True:
            fd = os.open(self.path(name), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if self.is_current(fd, name):
                    return fd
            except OSError as error:
                if error.errno not in (errno.EWOULDBLOCK, errno.EINTR):
                    raise
            os.close(fd)
            if time.monotonic() > deadline:
                raise Stuck("what an older generation began does not let go of %s" % self.path(name))
            self.kill(below)
            time.sleep(pause)
            pause = min(pause * 2, 0.1)

    def is_current(self, fd, name):
        """A folder that was long unused may have been removed and made anew since the descriptor was opened."""
        try:
            there = os.stat(self.path(name))
        except FileNotFoundError:
            return False
        return (there.st_dev, there.st_ino) == (os.fstat(fd).st_dev, os.fstat(fd).st_ino)

    def write(self, state, generation):
        write_atomic(self.path("generation"), "%s %d\n" % (state, generation))

    def settle(self, below):
        """Ends when nothing of a generation below acts any more. Returns the lock, held exclusively."""
        self.kill(below)
        return self.acquire("lock", below)

    def kill(self, below):
        """SIGKILL to everything marked with a generation below, stopped or not; never to ourselves or who waits for us."""
        spared = ancestors()
        left = []
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) not in spared:
                left += self.kill_marked(int(name), below)
        # What a killed command left running in its group ends too. The empty group goes with the node's.
        for group in left:
            groups.kill(group)

    def kill_marked(self, pid, below):
        """Returns the control group of the command that the process ran, if it had one of its own."""
        try:
            # Opened before it is looked at: the descriptor never means a later process of that number.
            watcher = os.pidfd_open(pid)
        except OSError:
            return []
        try:
            words = read_environment(pid)
            generation = self.generation_in(words)
            if generation is None or generation >= below:
                return []
            # Only root of the host names a group: a node's own root could name any.
            is_root = os.stat("/proc/%d" % pid).st_uid == 0
            signal.pidfd_send_signal(watcher, signal.SIGKILL)
            return [word[len(GROUP):].decode() for word in words if is_root and word.startswith(GROUP)]
        except (FileNotFoundError, ProcessLookupError):
            return []
        finally:
            os.close(watcher)

    def generation_in(self, words):
        for word in words:
            number = word[len(self.mark):]
            if word.startswith(self.mark) and number.isdigit():
                return int(number)
        return None


def read_environment(pid):
    try:
        with open("/proc/%d/environ" % pid, "rb") as file:
            return file.read().split(b"\0")
    except OSError as error:
        # Gone, a zombie, or a kernel thread.
        if error.errno in (errno.ENOENT, errno.ESRCH, errno.EACCES, errno.EPERM):
            return []
        raise


def ancestors():
    found, pid = set(), os.getpid()
    while pid > 0:
        found.add(pid)
        try:
            with open("/proc/%d/stat" % pid) as file:
                pid = int(file.read().rsplit(")", 1)[1].split()[1])
        except OSError:
            break
    return found


def stop_here(verb):
    """Where a test stops this process between the check and the act."""
    if os.environ.get("INFRABED_FAILPOINT") == "stop:container.act.%s#1" % verb:
        os.kill(os.getpid(), signal.SIGSTOP)
