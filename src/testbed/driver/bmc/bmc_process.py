"""One ipmi_sim: started in the cluster's network, probed, watched, and started again when it ends."""
import ctypes
import json
import os
import signal
import socket
import subprocess
import time

import machine_lines
import rmcp

# A BMC that dies at once is started again more and more slowly.
FIRST_PAUSE_SEC = 0.2
LONGEST_PAUSE_SEC = 30
# One that ran this long had come up properly.
PROPER_RUN_SEC = 20
PROBE_SEC = 0.1
READY_CHECK_SEC = 5
# So many unanswered probes of one that had answered, and it is taken for dead.
LOST_PROBES = 4
START_TIMEOUT_SEC = 30
PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 24, 38
CAP_NET_BIND_SERVICE = 10
CAPABILITIES = 64


class BmcProcess:
    def __init__(self, bmc, config, queue, watch):
        self.bmc, self.config, self.queue, self.watch = bmc, config, queue, watch
        self.folder = bmc["folder"]
        self.lines = machine_lines.MachineLines(bmc, watch, lambda: queue.add("restarted", "machine"))
        self.child = self.exit_fd = self.line = self.probe = None
        self.is_ready = False
        self.started = self.next_start = self.next_probe = 0.0
        self.pause = FIRST_PAUSE_SEC
        self.starts = self.unanswered = 0

    def tend(self, now):
        """Does what is due. Returns the seconds until something is due again."""
        return min(self.tend_bmc(now), self.lines.tend(now))

    def tend_bmc(self, now):
        if self.child is None:
            if now >= self.next_start:
                self.try_start(now)
            return max(0.01, (self.next_start if self.child is None else self.next_probe) - now)
        if now >= self.next_probe:
            self.ask(now)
        return max(0.01, self.next_probe - now)

    def try_start(self, now):
        try:
            self.start(now)
        except OSError as error:
            self.note("ipmi_sim could not be started: %s" % error)
            if self.child is not None:
                self.child.kill()
                self.child.wait()
                self.child = None
            self.next_start = now + LONGEST_PAUSE_SEC

    def start(self, now):
        self.prepare()
        lines = self.lines.for_bmc()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        log = open(os.path.join(self.folder, "ipmi_sim.log"), "ab")
        log.write(b"--- started\n")
        log.flush()
        libc, netns = ctypes.CDLL(None), self.config["netns"]
        parent = os.getpid()

        def enter():
            # What is not supervised does not run.
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)
            if netns is not None:
                enter_network(libc, netns)
            give_up_privileges(libc)

        argv = [self.config["ipmiSim"], "-n", "-c", self.path("lan.run.conf"), "-f", self.path("sim.emu"),
                "-s", self.path("state")]
        environment = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8",
                       # Ahead of ipmi_sim's own libraries, whose packets it looks at (module/guard.c).
                       "LD_PRELOAD": self.config["module"], "INFRABED_BMC_LINE": str(theirs.fileno()),
                       **{name: str(fd) for name, fd in lines.items()}}
        self.child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder,
                                      env=environment, pass_fds=[theirs.fileno(), *lines.values()],
                                      preexec_fn=enter)
        theirs.close()
        self.lines.started()
        log.close()
        self.probe = self.open_probe(libc, netns)
        self.line = ours
        self.exit_fd = os.pidfd_open(self.child.pid)
        self.watch(ours.fileno(), self.hear)
        self.watch(self.exit_fd, self.ended)
        self.watch(self.probe.fileno(), self.answered)
        self.started, self.next_probe, self.unanswered, self.starts = now, now, 0, self.starts + 1
        self.tell("starting")

    def prepare(self):
        """The controller's account comes from its password file; what is defined anew at each start must not be there twice."""
        with open(self.path("password")) as file:
            password = file.read().strip()
        with open(self.path("lan.conf")) as file:
            text = file.read()
        write(self.path("lan.run.conf"), text + '  user 2 true "%s" "%s" admin 10\n' % (self.bmc["account"], password))
        kept = os.path.join(self.path("state"), "ipmi_sim", self.bmc["name"])
        remove(os.path.join(kept, "sdr.20.main"))
        users = os.path.join(kept, "users.mc20")
        try:
            with open(users) as file:
                lines = file.readlines()
        except FileNotFoundError:
            return
        write(users, "".join(line for line in lines if not line.startswith("2.")))

    def open_probe(self, libc, netns):
        if netns is None:
            probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        else:
            # A socket belongs to the network in which it was made.
            own = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
            try:
                enter_network(libc, netns)
                probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            finally:
                set_network(libc, own)
                os.close(own)
        probe.setblocking(False)
        try:
            probe.connect((self.bmc["address"], self.bmc["port"]))
        except OSError:
            probe.close()
            raise
        return probe

    def ask(self, now):
        if self.is_ready:
            self.unanswered += 1
            if self.unanswered > LOST_PROBES:
                self.note("it no longer answers")
                self.child.kill()
        elif now - self.started > START_TIMEOUT_SEC:
            self.note("its port did not open in %d s" % START_TIMEOUT_SEC)
            self.child.kill()
        try:
            self.probe.send(rmcp.PRESENCE_PING)
        except OSError:
            # Refused: the port is not open yet.
            pass
        self.next_probe = now + (READY_CHECK_SEC if self.is_ready else PROBE_SEC)

    def answered(self):
        if self.probe is None:
            # It ended in the same turn.
            return
        try:
            data = self.probe.recv(256)
        except OSError:
            return
        if not rmcp.is_presence_pong(data):
            return
        self.unanswered = 0
        if not self.is_ready:
            self.is_ready = True
            self.next_probe = time.monotonic() + READY_CHECK_SEC
            self.tell("ready")

    def hear(self):
        if self.line is None:
            return
        try:
            text = self.line.recv(200).decode(errors="replace")
        except BlockingIOError:
            return
        except OSError:
            text = ""
        words = text.split(" ")
        if words[0] == "power" and len(words) == 2:
            line = self.line
            self.queue.ask_power(lambda state: reply(line, "power %s %s" % (words[1], state)))
        elif words[0] == "act" and len(words) == 3:
            self.queue.add(words[1], words[2])
        elif text == "":
            # It closed its end: it is ending.
            self.watch(self.line.fileno(), None)
            self.line.close()
            self.line = None

    def ended(self):
        status = self.child.wait()
        now = time.monotonic()
        if now - self.started > PROPER_RUN_SEC:
            self.pause = FIRST_PAUSE_SEC
        self.note("ipmi_sim ended with status %d; it is started again in %.1f s" % (status, self.pause))
        self.release()
        self.next_start = now + self.pause
        self.pause = min(self.pause * 2, LONGEST_PAUSE_SEC)
        self.tell("ended")

    def release(self):
        for fd in [self.exit_fd, self.probe.fileno()] + ([] if self.line is None else [self.line.fileno()]):
            self.watch(fd, None)
        os.close(self.exit_fd)
        self.probe.close()
        if self.line is not None:
            self.line.close()
        self.child = self.exit_fd = self.line = self.probe = None
        self.is_ready = False

    def stop(self):
        if self.child is not None:
            self.child.kill()
            self.child.wait()

    def path(self, name):
        return os.path.join(self.folder, name)

    def tell(self, state):
        """What whoever waits for this BMC reads."""
        pid = None if self.child is None else self.child.pid
        write(self.path("status.json"), json.dumps(
            {"state": state, "pid": pid, "starts": self.starts, "atMs": int(time.time() * 1000)}) + "\n")

    def note(self, text):
        with open(self.path("bmcd.log"), "a") as file:
            file.write("%s %s\n" % (time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), text))


def give_up_privileges(libc):
    """What agents send to a BMC is read by a program in C: of root's power it keeps the port, and files of root."""
    for capability in range(CAPABILITIES):
        if capability != CAP_NET_BIND_SERVICE:
            # A kernel that has fewer refuses those that it does not know, which are none.
            libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def reply(line, text):
    try:
        line.send(text.encode())
    except OSError:
        # It ended, or no longer reads: then nobody waits for this.
        pass


def enter_network(libc, path):
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        set_network(libc, fd)
    finally:
        os.close(fd)


def set_network(libc, fd):
    if libc.setns(fd, 0x40000000) != 0:
        raise OSError("the cluster's network could not be entered")


def write(path, text):
    """A reader sees the old content or the new one."""
    fresh = path + ".new"
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "w") as file:
        file.write(text)
    os.rename(fresh, path)


def remove(path):
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
