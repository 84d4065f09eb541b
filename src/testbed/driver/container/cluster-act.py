"""One act on a cluster, made for one generation of its lease: checked and done under the lock of the cluster's fence.

Usage: cluster-act.py VERB, the request as JSON on standard input, the result as JSON on standard output. Exit status 76:
another generation has the cluster, and nothing was done.
"""
import json
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import bmc_daemon  # noqa: E402
import fence  # noqa: E402
import make_cluster  # noqa: E402
import node_power  # noqa: E402
import take_cluster  # noqa: E402

VERBS = {
    "bmc-start": bmc_daemon.start,
    "bmc-stop": bmc_daemon.stop,
    "make": make_cluster.make,
    "on": node_power.on,
    "off": node_power.off,
    "ask-off": node_power.ask_off,
    "tidy": node_power.tidy,
    "remove": make_cluster.remove,
    "take": take_cluster.take,
    "retire": take_cluster.retire,
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
    except node_power.PowerError as error:
        return {"code": "IB_POWER", "message": str(error)}
    except make_cluster.NoRange as error:
        return {"code": "IB_HOST_UNFIT", "message": str(error)}
    except OSError as error:
        return {"errno": error.errno or 0, "message": error.strerror or str(error), "path": str(error.filename or "")}


json.dump(answer(), sys.stdout)
