"""What one BMC asks of its node's power: carried out in order, one at a time, by the power program, and written down.

The power program is an argument list; it gets one word more: state (prints on, off or unknown), on, off, reset, soft, or
restarted: the system in the machine did so by itself, and the boot override counts for that boot, too.
It may take its time, but not longer than ACT_TIMEOUT_SEC.
"""
import json
import os
import subprocess
import time

ACT_TIMEOUT_SEC = 120
STATE_TIMEOUT_SEC = 10
# The system is off for at least a second in a power cycle (IPMI 2.0, section 28.3).
CYCLE_OFF_SEC = 1
# More than this in the queue can only be a client that went wrong.
LONGEST_QUEUE = 32
STEPS = {"on": ["on"], "off": ["off"], "reset": ["reset"], "soft": ["soft"], "cycle": ["off", "pause", "on"],
         "restarted": ["restarted"], "identify": []}


class PowerQueue:
    def __init__(self, bmc, watch):
        self.power, self.log_path, self.watch = bmc["power"], os.path.join(bmc["folder"], "requests.jsonl"), watch
        self.waiting = []
        # (request, steps that are left)
        self.current = None
        self.pause_until = None
        self.running = None
        self.askers = []
        self.asking = None

    def add(self, act, cause):
        request = {"atMs": int(time.time() * 1000), "act": act, "cause": cause}
        if act not in STEPS or len(self.waiting) >= LONGEST_QUEUE:
            self.log({**request, "state": "refused"})
            return
        self.log({**request, "state": "asked"})
        self.waiting.append(request)
        self.advance()

    def tend(self, now):
        """Returns the seconds until something is due."""
        if self.pause_until is not None:
            if now < self.pause_until:
                return self.pause_until - now
            self.pause_until = None
            self.advance()
        due = 60.0
        for child, deadline in [one for one in (self.running, self.asking) if one is not None]:
            if now >= deadline:
                child.process.kill()
            due = min(due, max(0.1, deadline - now))
        return due

    def advance(self):
        while self.running is None and self.pause_until is None:
            if self.current is None:
                if not self.waiting:
                    return
                request = self.waiting.pop(0)
                self.current = (request, list(STEPS[request["act"]]))
            request, steps = self.current
            if not steps:
                self.finish("done")
                continue
            step = steps.pop(0)
            if step == "pause":
                self.pause_until = time.monotonic() + CYCLE_OFF_SEC
                return
            child = Child(self.power["argv"] + [step], self.watch, self.step_ended)
            self.running = (child, time.monotonic() + ACT_TIMEOUT_SEC)

    def step_ended(self, status, _output, error):
        self.running = None
        if status != 0:
            self.finish("failed", error or "the power program ended with status %d" % status)
        self.advance()

    def finish(self, state, error=None):
        request, _steps = self.current
        self.current = None
        self.log({**request, "endMs": int(time.time() * 1000), "state": state, **({"error": error} if error else {})})

    def ask_power(self, answer):
        known = self.state_in_file()
        if known is not None:
            answer(known)
            return
        self.askers.append(answer)
        if self.asking is None:
            child = Child(self.power["argv"] + ["state"], self.watch, self.state_told)
            self.asking = (child, time.monotonic() + STATE_TIMEOUT_SEC)

    def state_in_file(self):
        """ "on" where a file says so; everything else has to be asked for."""
        proof = self.power.get("onFile")
        if proof is None:
            return None
        try:
            with open(proof["path"]) as file:
                return "on" if proof["text"] in file.read() else None
        except OSError:
            return None

    def state_told(self, status, output, _error):
        word = output.strip()
        state = word if status == 0 and word in ("on", "off") else "unknown"
        askers, self.askers, self.asking = self.askers, [], None
        for answer in askers:
            answer(state)

    def log(self, entry):
        fd = os.open(self.log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, (json.dumps(entry) + "\n").encode())
        finally:
            os.close(fd)


class Child:
    """A power program that runs. Its output is short, so it fits into the pipes."""

    def __init__(self, argv, watch, ended):
        self.watch, self.callback = watch, ended
        self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.fd = os.pidfd_open(self.process.pid)
        watch(self.fd, self.ended)

    def ended(self):
        status = self.process.wait()
        self.watch(self.fd, None)
        os.close(self.fd)
        output, error = read_available(self.process.stdout), read_available(self.process.stderr)
        last = error.strip().splitlines()
        self.callback(status, output, last[-1] if last else "")


def read_available(pipe):
    """Not to its end: what the program left running may hold it open."""
    os.set_blocking(pipe.fileno(), False)
    try:
        return (pipe.read(4096) or b"").decode(errors="replace")
    except BlockingIOError:
        return ""
    finally:
        pipe.close()
