"""Works a container node's power for its BMC (bmc/power_queue.py): by the controller's own acts, under the same fence.

Usage: bmc-power.py REQUEST-FILE state|on|off|reset|soft. It acts for whichever generation of the lease has the cluster now;
a take-over in between is met once by asking again.
"""
import json
import os
import subprocess
import sys

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import fence  # noqa: E402
import node_power  # noqa: E402

STEPS = {"on": ["on"], "off": ["off"], "reset": ["off", "on"]}


class Failed(Exception):
    """The act was not done."""


def act(request, verb):
    for _attempt in (1, 2):
        state, generation = fence.Fence(request["fence"], request["mark"]).now()
        if state != "live":
            raise Failed("the cluster is gone")
        done = subprocess.run(
            ["/usr/bin/python3", "-I", "-S", os.path.join(HERE, "cluster-act.py"), verb],
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
        print("on" if node_power.is_present(request) else "off")
    elif wanted == "soft":
        # The power button: without an operating system that hears it, the power just goes.
        if not act(request, "ask-off")["acted"]:
            act(request, "off")
    else:
        for verb in STEPS[wanted]:
            act(request, verb)


try:
    main()
except (Failed, OSError, subprocess.SubprocessError) as error:
    sys.exit("infrabed: %s" % error)
