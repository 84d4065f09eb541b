"""What joins a BMC to a virtual machine: its serial port, its in-band interface (KCS), and what QEMU tells of it. All are
UNIX sockets.

ipmi_sim knows TCP ports only, and is in another network than the hypervisor. So it is given sockets that are open already,
which the module puts in the place of those ports (module/lines.c). These here last: neither end has to wait for the other's
start, and nothing listens on any network.
"""
import json
import os
import socket

# The machine serves its serial port, and is not there while it is off.
RETRY_SEC = 0.25
CHUNK_BYTES = 4096
# No message of QEMU's is as long.
LONGEST_MESSAGE_BYTES = 1 << 20


class MachineLines:
    """`plan` may hold `serial`, a path, and `kcs` and `events`: each a path and who may connect to it."""

    def __init__(self, plan, watch, restarted):
        self.kcs = plan.get("kcs")
        self.listener = None
        self.serial = SerialLine(plan["serial"], watch) if plan.get("serial") else None
        self.events = MachineEvents(plan["events"], watch, restarted) if plan.get("events") else None

    def for_bmc(self):
        """What an ipmi_sim inherits that is about to start: variables, with the descriptors that they name."""
        inherited = {}
        if self.kcs is not None:
            if self.listener is None:
                self.listener = listen(**self.kcs)
            inherited["INFRABED_BMC_KCS"] = self.listener.fileno()
        if self.events is not None:
            self.events.open()
        if self.serial is not None:
            inherited["INFRABED_BMC_SERIAL"] = self.serial.renew()
        return inherited

    def started(self):
        """The child has its end of the serial line."""
        if self.serial is not None:
            self.serial.hand_over()

    def tend(self, now):
        return 60.0 if self.serial is None else self.serial.tend(now)


def listen(path, uid, gid):
    """Whoever runs the machine may connect, nobody else: in-band access needs no login."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        before = os.umask(0o177)
        try:
            listener.bind(path)
        finally:
            os.umask(before)
        os.chown(path, uid, gid)
        listener.listen(4)
    except OSError:
        listener.close()
        raise
    return listener


class SerialLine:
    """Carries bytes between the machine's serial port and the BMC. What nobody takes is lost, as on a wire."""

    def __init__(self, path, watch):
        self.path, self.watch = path, watch
        self.machine = self.bmc = self.theirs = None
        self.next_try = 0.0

    def renew(self):
        """The descriptor of a new BMC's end."""
        self.drop("bmc")
        self.hand_over()
        self.bmc, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.bmc.setblocking(False)
        self.watch(self.bmc.fileno(), lambda: self.carry("bmc", "machine"))
        return self.theirs.fileno()

    def hand_over(self):
        if self.theirs is not None:
            self.theirs.close()
            self.theirs = None

    def tend(self, now):
        if self.machine is None and now >= self.next_try:
            self.connect()
            self.next_try = now + RETRY_SEC
        return 60.0 if self.machine is not None else max(0.01, self.next_try - now)

    def connect(self):
        machine = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        machine.setblocking(False)
        try:
            machine.connect(self.path)
        except OSError:
            # It is off.
            machine.close()
            return
        self.machine = machine
        self.watch(machine.fileno(), lambda: self.carry("machine", "bmc"))

    def carry(self, source, target):
        end, other = getattr(self, source), getattr(self, target)
        if end is None:
            # It ended in the same turn.
            return
        try:
            data = end.recv(CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.drop(source)
            return
        try:
            if other is not None:
                other.send(data)
        except OSError:
            # It is full, or ends: then that is seen when it is read.
            pass

    def drop(self, name):
        end = getattr(self, name)
        if end is not None:
            self.watch(end.fileno(), None)
            end.close()
            setattr(self, name, None)


class MachineEvents:
    """A monitor of QEMU (QMP), which tells when the system in the machine restarts it: nobody else would know."""

    def __init__(self, place, watch, restarted):
        self.place, self.watch, self.restarted = place, watch, restarted
        self.listener = self.machine = None
        self.begun = b""

    def open(self):
        if self.listener is None:
            self.listener = listen(**self.place)
            self.listener.setblocking(False)
            self.watch(self.listener.fileno(), self.accept)

    def accept(self):
        try:
            machine, _address = self.listener.accept()
        except OSError:
            return
        # The newest start of the machine is the one that runs.
        self.drop()
        machine.setblocking(False)
        self.machine, self.begun = machine, b""
        self.watch(machine.fileno(), self.hear)
        try:
            machine.send(b'{"execute": "qmp_capabilities"}\n')
        except OSError:
            self.drop()

    def hear(self):
        if self.machine is None:
            # It ended in the same turn.
            return
        try:
            data = self.machine.recv(CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data or len(self.begun) > LONGEST_MESSAGE_BYTES:
            self.drop()
            return
        *lines, self.begun = (self.begun + data).split(b"\n")
        for line in lines:
            if is_own_restart(line):
                self.restarted()

    def drop(self):
        if self.machine is not None:
            self.watch(self.machine.fileno(), None)
            self.machine.close()
            self.machine = None


def is_own_restart(line):
    """QMP's event RESET, but not one that the hypervisor was asked for."""
    try:
        message = json.loads(line)
    except ValueError:
        return False
    return isinstance(message, dict) and message.get("event") == "RESET" and message.get("data", {}).get("guest") is True
