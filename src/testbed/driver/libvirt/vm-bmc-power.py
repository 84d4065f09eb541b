"""Works a virtual machine's power for its BMC (bmc/power_queue.py): by the controller's own acts, under the same fence.

Usage: vm-bmc-power.py REQUEST-FILE state|on|off|reset|soft|restarted. It acts for whichever generation of the lease has the cluster now;
a take-over in between is met once by asking again.
"""
import fcntl
import json
import os
import subprocess
import sys
import time

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "container")]
import fence  # noqa: E402
import vm_power  # noqa: E402


START_LIMIT_SEC = 30


class Failed(Exception):
    """The act was not done."""


def reach(request):
    """A libvirtd of our own ends when no machine runs, which is when a BMC is asked to switch one on."""
    folder = request["ownFolder"]
    if folder is None or answers(request["uri"]):
        return
    # The lock that hypervisor.ts takes, too.
    lock = os.open(os.path.join(folder, ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    if answers(request["uri"]):
        return
    with open(os.path.join(folder, "start.log"), "a") as log:
        subprocess.run(["setsid", "--fork", "unshare", "--mount", "--propagation=private",
                        os.path.join(HERE, "own-libvirtd.sh"), folder],
                       stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=True)
    deadline = time.monotonic() + START_LIMIT_SEC
    while not answers(request["uri"]):
        if time.monotonic() > deadline:
            raise Failed("the hypervisor does not answer: see %s/start.log" % folder)
        time.sleep(0.2)
    os.close(lock)


def answers(uri):
    return vm_power.ask(uri, "version")[0] == 0


def runs(request):
    """A BMC has to answer within a second or so: so the machine's process is looked at, and libvirt is not asked."""
    pid = fence.read_text(request["pidFile"]).strip()
    try:
        with open("/proc/%d/cmdline" % int(pid or 0), "rb") as file:
            return request["domain"].encode() in file.read()
    except FileNotFoundError:
        return False


def act(request, verb):
    for _attempt in (1, 2):
        state, generation = fence.Fence(request["fence"], request["mark"]).now()
        if state != "live":
            raise Failed("the cluster is gone")
        done = subprocess.run(
            ["/usr/bin/python3", "-I", "-S", os.path.join(HERE, "vm-act.py"), verb],
            input=json.dumps({**request, "generation": generation}), text=True, capture_output=True, check=False,
            env={**request["env"], "INFRABED_CLUSTER": "%s:%d" % (request["mark"], generation)})
        # A take-over kills what acts for an older generation, or refuses it.
        if done.returncode == fence.FENCED_OFF or done.returncode < 0:
            continue
        if done.returncode != 0:
            raise Failed(done.stderr.strip())
        answer = json.loads(done.stdout)
        if "done" not in answer:
            raise Failed(answer["message"])
        return answer["done"]
    raise Failed("another generation of the lease has the cluster")


def main():
    with open(sys.argv[1]) as file:
        request = json.load(file)
    wanted = sys.argv[2]
    if wanted == "state":
        print("on" if runs(request) else "off")
        return
    reach(request)
    if wanted == "soft":
        # The power button: without an operating system that hears it, the power just goes.
        if not act(request, "ask-off")["acted"]:
            act(request, "off")
    else:
        act(request, wanted)


try:
    main()
except (Failed, vm_power.PowerError, OSError, subprocess.SubprocessError) as error:
    sys.exit("infrabed: %s" % error)
