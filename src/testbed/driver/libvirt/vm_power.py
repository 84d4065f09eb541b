"""Power acts on one virtual machine, under the fence's lock: each is written down in power.log before and after."""
import json
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "container"))
import fence  # noqa: E402

ASK_TIMEOUT_SEC = 60
# What a machine is that draws power, also one that QEMU has stopped because its disk failed.
ON = {"running", "idle", "paused", "in shutdown", "pmsuspended"}
OFF = {"shut off", "crashed"}


class PowerError(Exception):
    """The machine did not do what it should."""


def ask(uri, *words):
    """virsh's status and what it printed. A hypervisor that does not answer in time is an error, never an answer."""
    env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", "HOME": "/nonexistent"}
    env.update({name: os.environ[name] for name in ("INFRABED_CLUSTER",) if name in os.environ})
    try:
        done = subprocess.run(["virsh", "--quiet", "--connect", uri, *words], capture_output=True, text=True,
                              timeout=ASK_TIMEOUT_SEC, check=False, stdin=subprocess.DEVNULL, env=env)
    except subprocess.TimeoutExpired:
        raise PowerError("The hypervisor did not answer within %d s: virsh %s" % (ASK_TIMEOUT_SEC, words[0])) from None
    return done.returncode, done.stdout.strip(), done.stderr.strip()


def tell(uri, *words):
    status, said, wrong = ask(uri, *words)
    if status != 0:
        raise PowerError("virsh %s: %s" % (words[0], wrong.replace("error: ", "").replace("\n", " ")))
    return said


def names(uri):
    """Of all machines of the hypervisor."""
    return [name for name in tell(uri, "list", "--all", "--name").split("\n") if name]


def state(uri, domain):
    """As libvirt names it; None where the hypervisor has no such machine."""
    status, said, wrong = ask(uri, "domstate", domain)
    if status == 0:
        return said
    if "failed to get domain" in wrong:
        return None
    raise PowerError("virsh domstate: %s" % wrong.replace("\n", " "))


def desire(request, wanted):
    with open(os.path.join(request["folder"], "desired"), "w") as file:
        file.write(wanted + "\n")


def log(request, act, how):
    """One line, written at once: several processes append to the same file."""
    line = {"atMs": int(time.time() * 1000), "cluster": request["cluster"], "node": request["node"],
            "generation": request["generation"], "act": act, "state": how}
    if "via" in request:
        line["via"] = request["via"]
    fd = os.open(request["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, (json.dumps(line) + "\n").encode())
    finally:
        os.close(fd)


def on(_guarded, request):
    """
    Defines the machine as it is to be from this start on, and starts it. It is started standing still: its network card
    is first brought into the cluster's own network, since libvirt can only make it in that of the hypervisor.
    """
    desire(request, "on")
    uri, domain = request["uri"], request["domain"]
    before = state(uri, domain)
    if before in ON:
        # A start that was killed half-way is gone on with; a machine that QEMU stopped for a failed disk is not ours.
        if before == "paused" and not is_attached(request):
            attach(request)
            tell(uri, "resume", domain)
        return {"acted": False}
    log(request, "on", "begin")
    start(request, request["definitions"][boot_device(request)])
    log(request, "on", "done")
    return {"acted": True}


def start(request, definition):
    uri, domain = request["uri"], request["domain"]
    define(request, definition)
    tell(uri, "start", domain, "--paused")
    try:
        attach(request)
        tell(uri, "resume", domain)
    except (PowerError, OSError):
        ask(uri, "destroy", domain)
        raise


def boot_device(request):
    """What the BMC was told of this boot, which uses up what was meant for one boot (bmc/firmware.py)."""
    bmc = os.path.join(request["folder"], "bmc")
    if not os.path.isdir(bmc):
        return "none"
    # How often the machine was started: the BMC's watchdog belongs to one start.
    with open(os.path.join(bmc, "boots"), "a") as file:
        file.write(".")
    if not os.path.exists(os.path.join(bmc, "boot-options")):
        return "none"
    here = os.path.dirname(os.path.abspath(__file__))
    firmware = os.path.join(os.path.dirname(here), "bmc", "firmware.py")
    done = subprocess.run(["/usr/bin/python3", "-I", "-S", firmware, bmc], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise PowerError("The boot override of %s could not be read: %s" % (request["node"], done.stderr.strip()))
    return done.stdout.strip()


def definition_path(request):
    return os.path.join(request["folder"], "domain.xml")


def define(request, definition):
    fence.write_atomic(definition_path(request), definition)
    tell(request["uri"], "define", definition_path(request))


def is_attached(request):
    shown = subprocess.run(["ip", "-netns", request["netns"], "link", "show", request["tap"]],
                           capture_output=True, check=False)
    return shown.returncode == 0


def attach(request):
    """The card's end leaves the hypervisor's network for the cluster's bridge. It goes when the machine is off."""
    tap, netns = request["tap"], request["netns"]
    for argv in (
        ["ip", "link", "set", tap, "netns", netns],
        ["ip", "-netns", netns, "link", "set", tap, "mtu", str(request["mtu"]), "master", "br0", "up"],
    ):
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise PowerError("The network card of %s could not be connected: %s" % (request["node"], done.stderr.strip()))


def off(_guarded, request):
    desire(request, "off")
    uri, domain = request["uri"], request["domain"]
    if state(uri, domain) not in ON:
        return {"acted": False}
    log(request, "off", "begin")
    kill(uri, domain)
    log(request, "off", "done")
    return {"acted": True}


def kill(uri, domain):
    status, _said, wrong = ask(uri, "destroy", domain)
    now = state(uri, domain)
    if now in ON:
        raise PowerError("%s is %s although it was switched off: %s" % (domain, now, wrong if status else "no reason given"))


def ask_off(_guarded, request):
    """Presses the power button."""
    desire(request, "off")
    uri, domain = request["uri"], request["domain"]
    if state(uri, domain) != "running":
        return {"acted": False}
    if request["isFirst"]:
        log(request, "ask-off", "begin")
    tell(uri, "shutdown", domain, "--mode", "acpi")
    if request["isFirst"]:
        log(request, "ask-off", "done")
    return {"acted": True}


def reset(guarded, request):
    """
    The reset line, while the machine stays on. One that is off is switched on. libvirt cannot change from where a machine
    boots while it is on: where that has to change, the reset is an off and on at once.
    """
    uri, domain = request["uri"], request["domain"]
    if state(uri, domain) not in ON:
        return on(guarded, request)
    desire(request, "on")
    log(request, "reset", "begin")
    definition = request["definitions"][boot_device(request)]
    if definition == fence.read_text(definition_path(request)):
        tell(uri, "reset", domain)
        if state(uri, domain) == "paused":
            tell(uri, "resume", domain)
    else:
        kill(uri, domain)
        start(request, definition)
    log(request, "reset", "done")
    return {"acted": True}


def restarted(_guarded, request):
    """
    The system in the machine restarted it. The firmware then asks the BMC as at any start, and where that changes from
    where the machine boots, it is switched off and on at once, before its firmware has got far.
    """
    uri, domain = request["uri"], request["domain"]
    if state(uri, domain) not in ON:
        return {"acted": False}
    definition = request["definitions"][boot_device(request)]
    if definition == fence.read_text(definition_path(request)):
        return {"acted": False}
    log(request, "reset", "begin")
    kill(uri, domain)
    start(request, definition)
    log(request, "reset", "done")
    return {"acted": True}
