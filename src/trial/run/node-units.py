"""Which units run on this node, and the end of those that a login left behind.

`node-units.py list` prints {"units": [...], "at": BOOT_SECONDS} as JSON. `node-units.py close SNAPSHOT`, given
such an object, kills every session scope, user manager and transient unit that is not in it and
every process outside all units or with a login's environment, and prints what it killed and what it left. The login
that runs it is spared, but nothing else in that login's scope. Where systemd does not answer (root can take its sockets
away), control groups and files of transient units tell instead.
"""
import json
import os
import signal
import subprocess
import sys
import time

PROPERTIES = "Id,Transient,FragmentPath,ActiveState,ControlGroup"


def systemctl(*arguments):
    return subprocess.run(
        ["systemctl", *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30
    )


def units():
    shown = systemctl("show", "--property=" + PROPERTIES, "*")
    if shown.returncode != 0:
        sys.exit("systemctl show failed: " + shown.stderr.strip())
    found = []
    for block in shown.stdout.split("\n\n"):
        unit = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        if unit.get("Id") and unit.get("ActiveState") not in ("inactive", None):
            found.append(unit)
    if not found:
        sys.exit("systemctl show named no unit at all")
    return found


def is_left_behind(unit, known):
    name = unit["Id"]
    if name == "init.scope" or unit.get("ControlGroup") == OWN_GROUP:
        return False
    # Nobody but the agent and the controller logs in, and the controller has hung up: no login is worth keeping but
    # the one that this runs in, though it (the controller's own) may have been there when the window opened.
    if name.startswith(("session-", "user@", "user-runtime-dir@")):
        return True
    if name in known:
        return False
    if name.endswith(".scope"):
        return True
    return unit.get("Transient") == "yes" and not name.endswith((".slice", ".mount", ".device"))


def stat_of(pid):
    """Fields after the name: state, parent, ..."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
        return stat.read().rsplit(")", 1)[1].split()


def unified_group(pid):
    with open(f"/proc/{pid}/cgroup", encoding="utf-8") as cgroup:
        return next((line.split("::", 1)[1].strip() for line in cgroup if line.startswith("0::")), "")


def ancestors():
    """This process and what started it; 0 where that is outside of what can be seen."""
    pid, chain = os.getpid(), set()
    while pid > 1:
        chain.add(pid)
        pid = int(stat_of(pid)[1])
    return chain | {1}


def processes():
    ticks = os.sysconf("SC_CLK_TCK")
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) in OWN_CHAIN:
            continue
        try:
            fields = stat_of(entry)
            path = unified_group(entry)
            with open(f"/proc/{entry}/cmdline", "rb") as cmdline:
                command = cmdline.read(400).replace(b"\0", b" ").decode("utf-8", "replace").strip()
            with open(f"/proc/{entry}/environ", "rb") as environ:
                login = any(v.startswith((b"SSH_CONNECTION=", b"XDG_SESSION_ID=")) for v in environ.read().split(b"\0"))
        except (OSError, IndexError):
            continue  # it ended while we looked
        if fields[0] in "ZX" or not command:
            continue  # kernel threads and the dead
        yield {"pid": int(entry), "started": int(fields[19]) / ticks, "cgroup": path, "command": command, "login": login}


def is_loose(cgroup):
    """Without systemd's word: in a login's part of the tree, a scope, or a unit that has no file of its own."""
    names = cgroup.strip("/").split("/")
    if names[0] == "user.slice" or names[-1].endswith(".scope"):
        return True
    return any(os.path.lexists("/run/systemd/transient/" + name) for name in names if name.endswith(".service"))


def is_in(cgroup, groups):
    return any(cgroup == group or cgroup.startswith(group + "/") for group in groups)


def asked():
    """The units, or none of them and the reason."""
    try:
        return units(), None
    except (SystemExit, subprocess.TimeoutExpired) as error:
        return [], str(error)


def kill_unit(name):
    systemctl("kill", "--kill-whom=all", "--signal=SIGKILL", name)
    systemctl("stop", "--no-block", name)
    systemctl("reset-failed", name)


def close(before):
    known = {unit["Id"] for unit in before["units"]}
    now, silence = asked()
    new = [unit for unit in now if unit["Id"] not in known]
    doomed = [unit["Id"] for unit in now if is_left_behind(unit, known)]
    for name in doomed:
        kill_unit(name)
    # A process of root may have moved itself out of its session; what belongs to no unit, or still carries a
    # login's environment, goes too. Processes above our cgroup (path /..) are the controller's own.
    strays = []
    for process in processes():
        homeless = process["cgroup"] in ("/", "/init.scope")
        loose = silence is not None and is_loose(process["cgroup"])
        guest = OWN_GROUP is not None and is_in(process["cgroup"], {OWN_GROUP})
        if process["cgroup"].startswith("/..") or not (homeless or process["login"] or loose or guest):
            continue
        try:
            os.kill(process["pid"], signal.SIGKILL)
            strays.append(process)
        except ProcessLookupError:
            pass
    # Waited for are processes, not units: one without any (a runtime folder's) may be active for as long as it likes.
    groups = {unit.get("ControlGroup") for unit in now if unit["Id"] in doomed} - {None, "", "/"}
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and any(is_in(process["cgroup"], groups) for process in processes()):
        time.sleep(0.05)
    left = [p for p in processes() if p["started"] > before["at"] and not p["cgroup"].startswith("/..")]
    return {
        "killedUnits": sorted(doomed),
        "killedProcesses": [{"pid": p["pid"], "command": p["command"]} for p in strays],
        "stillActive": sorted(unit["Id"] for unit in asked()[0] if unit["Id"] in doomed),
        "newUnits": sorted(u["Id"] for u in new if u["Id"] not in doomed and u["Id"].endswith((".service", ".timer", ".socket"))),
        "newProcesses": [{"pid": p["pid"], "command": p["command"], "cgroup": p["cgroup"]} for p in left][:200],
        **({} if silence is None else {"silence": silence}),
    }


OWN_CHAIN = ancestors()
# The scope of the login that runs this. What comes from outside comes by no login, and its path begins with /.. here.
OWN_GROUP = unified_group("self")
if OWN_GROUP.startswith("/..") or not OWN_GROUP.endswith(".scope"):
    OWN_GROUP = None

if sys.argv[1] == "list":
    with open("/proc/uptime", encoding="ascii") as uptime:
        now = float(uptime.read().split()[0])
    # Start times in /proc/PID/stat count from the host's boot, uptime from the namespace's: compare like with like.
    at = int(stat_of("self")[19]) / os.sysconf("SC_CLK_TCK")
    json.dump({"units": [{"Id": unit["Id"]} for unit in units()], "at": at, "uptime": now}, sys.stdout)
else:
    json.dump(close(json.loads(sys.argv[2])), sys.stdout)
