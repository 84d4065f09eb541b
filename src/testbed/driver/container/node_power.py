"""Power acts on one node, under the fence's lock: each is written down in power.log before and after it is done."""
import json
import os
import signal
import stat
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import fence  # noqa: E402
import groups  # noqa: E402
import mounts  # noqa: E402


class PowerError(Exception):
    """The node did not do what it should."""


def desire(request, state):
    """Kept beside the node, so that a witness can tell a node that was switched off from one that went."""
    with open(os.path.join(request["folder"], "desired"), "w") as file:
        file.write(state + "\n")


def log(request, act, state):
    """One line, written at once: several processes append to the same file."""
    line = {
        "atMs": int(time.time() * 1000),
        "cluster": request["cluster"],
        "node": request["node"],
        "generation": request["generation"],
        "act": act,
        "state": state,
    }
    if "via" in request:
        line["via"] = request["via"]
    fd = os.open(request["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, (json.dumps(line) + "\n").encode())
    finally:
        os.close(fd)


def is_present(request):
    """True while the supervisor is there or about to come back, as it is between two boots."""
    if groups.is_populated(request["group"]):
        return True
    if request["unit"] is None:
        return False
    shown = subprocess.run(
        ["systemctl", "show", request["unit"], "--property=ActiveState"], capture_output=True, text=True, check=True)
    return shown.stdout.strip() in ["ActiveState=" + state for state in ("active", "activating", "reloading", "deactivating")]


def on(_guarded, request):
    desire(request, "on")
    if is_present(request):
        return {"acted": False}
    # Of the boot before: the firmware says anew whether it boots an operating system.
    remove_if_there(os.path.join(request["folder"], "bmc", "held"))
    log(request, "on", "begin")
    if request["unit"] is None:
        start_supervisor(request)
    else:
        # What is left of an earlier run of the unit would keep its name.
        systemctl("reset-failed", request["unit"])
        started = subprocess.run(request["argv"], capture_output=True, text=True, timeout=60, check=False)
        if started.returncode != 0:
            raise PowerError("The unit of %s could not be started: %s" % (request["node"], started.stderr.strip()))
    log(request, "on", "done")
    return {"acted": True}


def remove_if_there(path):
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def start_supervisor(request):
    """Ends when the supervisor is in its groups: whoever kills those from now on kills it, too."""
    for group in request["groups"]:
        os.makedirs(group, exist_ok=True)
    groups.limit(request["groups"], request["root"])
    told_read, told_write = os.pipe2(os.O_CLOEXEC)
    if os.fork() == 0:
        try:
            become_supervisor(request)
        except BaseException as error:
            os.write(told_write, str(error).encode())
        finally:
            os._exit(127)
    os.close(told_write)
    told = os.read(told_read, 4096)
    if told:
        raise PowerError("The supervisor of %s could not be started: %s" % (request["node"], told.decode()))


def become_supervisor(request):
    """In the child: a session and groups of its own, nothing of our descriptors and environment. Does not return."""
    os.setsid()
    for group in request["groups"]:
        groups.write(os.path.join(group, "cgroup.procs"), "0")
    console = os.open(request["console"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    os.dup2(console, 1)
    os.dup2(console, 2)
    os.chdir("/")
    os.execve(request["argv"][0], request["argv"], request["env"])


def systemctl(verb, unit):
    subprocess.run(["systemctl", verb, unit], capture_output=True, timeout=60, check=False)


def off(guarded, request):
    desire(request, "off")
    is_on = is_present(request)
    if is_on:
        note_boot(guarded, request["node"], request["group"])
        log(request, "off", "begin")
    if not groups.empty(request["group"]):
        raise PowerError("Processes in %s did not end although they were killed." % request["group"])
    tidy(guarded, request)
    if is_on:
        log(request, "off", "done")
    return {"acted": is_on}


def tidy(_guarded, request):
    """After a node went off: nothing may start it again, and no empty group is left."""
    if request["unit"] is not None:
        systemctl("stop", request["unit"])
        systemctl("reset-failed", request["unit"])
    for group in request["groups"]:
        groups.remove(group)


def ask_off(guarded, request):
    """Asks the init to shut down. The signal goes to the very process that was found, or to none."""
    desire(request, "off")
    init = groups.init_of(request["group"])
    if init is None:
        return {"acted": False}
    note_boot(guarded, request["node"], request["group"])
    if request["isFirst"]:
        log(request, "ask-off", "begin")
    try:
        watcher = os.pidfd_open(init[0])
        if groups.start_ticks(init[0]) == init[1]:
            signal.pidfd_send_signal(watcher, request["signal"])
        os.close(watcher)
    except (FileNotFoundError, ProcessLookupError):
        return {"acted": False}
    if request["isFirst"]:
        log(request, "ask-off", "done")
    return {"acted": True}


def note_boot(guarded, node, group):
    """Remembers the boot that is about to end, beside the fence, where it outlives the node. Silence is no error."""
    init = groups.init_of(group)
    if init is None:
        return
    try:
        root = os.open("/proc/%d/root" % init[0], os.O_PATH | os.O_DIRECTORY)
        file = mounts.open_beneath(root, "proc/sys/kernel/random/boot_id", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        # Taken away on the node, or the node has just ended: then this boot stays unknown.
        return
    text = os.read(file, 64).decode(errors="replace").strip() if stat.S_ISREG(os.fstat(file).st_mode) else ""
    os.close(file)
    os.close(root)
    if text:
        fence.write_atomic(guarded.path("boot." + node), text + "\n")
