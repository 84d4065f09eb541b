"""One act on a cluster of virtual machines, made for one generation of its lease: under the lock of the cluster's fence.

Usage: vm-act.py VERB, the request as JSON on standard input, the result as JSON on standard output. Exit status 76:
another generation has the cluster, and nothing was done. The fence is that of container clusters (container/fence.py).
"""
import json
import os
import sys

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "container")]
import bmc_daemon  # noqa: E402
import fence  # noqa: E402
import make_vms  # noqa: E402
import node_disk  # noqa: E402
import take_vms  # noqa: E402
import vm_power  # noqa: E402

VERBS = {
    "bmc-start": bmc_daemon.start,
    "bmc-stop": bmc_daemon.stop,
    "make": make_vms.make,
    "on": vm_power.on,
    "off": vm_power.off,
    "ask-off": vm_power.ask_off,
    "reset": vm_power.reset,
    "restarted": vm_power.restarted,
    "remove": make_vms.remove,
    "take": take_vms.take,
    "retire": take_vms.retire,
}
# These enter by other ways than by having the cluster.
UNCHECKED = {"make", "take", "retire"}


def main():
    verb = sys.argv[1]
    request = json.load(sys.stdin)
    guarded = fence.Fence(request["fence"], request["mark"])
    if verb not in UNCHECKED:
        # Held until this process ends.
        request["lock"] = guarded.enter(request["generation"])
        fence.stop_here(verb)
    return VERBS[verb](guarded, request) or {}


def answer():
    try:
        return {"done": main()}
    except fence.FencedOff as error:
        sys.stderr.write("infrabed: fenced off: %s\n" % error)
        sys.exit(fence.FENCED_OFF)
    except fence.Conflict as error:
        return {"code": "IB_LEASE_CONFLICT", "message": str(error)}
    except fence.Stuck as error:
        return {"code": "IB_TIMEOUT", "message": str(error)}
    except vm_power.PowerError as error:
        return {"code": "IB_POWER", "message": str(error)}
    except node_disk.TooLong as error:
        return {"code": "IB_HOST_UNFIT", "message": str(error)}
    except OSError as error:
        return {"errno": error.errno or 0, "message": error.strerror or str(error), "path": str(error.filename or "")}


json.dump(answer(), sys.stdout)
