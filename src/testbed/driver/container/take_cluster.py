"""Takes a cluster over from whoever had it: for another generation of its lease, or to remove it."""
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import bmc_daemon  # noqa: E402
import fence  # noqa: E402
import make_cluster  # noqa: E402
import node_power  # noqa: E402


def take(guarded, request):
    """The nodes run on. Where there is no cluster, only this generation or a later one can make it from now on."""
    generation = request["generation"]
    guard = guarded.acquire("guard", generation)
    _state, number = guarded.now()
    if generation < number:
        raise fence.FencedOff("generation %d of the lease has the cluster, not %d" % (number, generation))
    guarded.write("live" if os.path.exists(request["folder"]) else "floor", generation)
    remember(guarded, generation)
    lock = guarded.settle(generation)
    bmc_daemon.change_passwords(request["folder"])
    os.close(lock)
    if not os.path.exists(request["folder"]):
        # It was being removed when we came.
        guarded.write("floor", generation)
    os.close(guard)


def remember(guarded, generation):
    """The record of what was there names the generation that had it last."""
    text = fence.read_text(guarded.path("past.json"))
    if text:
        past = json.loads(text)
        past["generation"] = generation
        fence.write_atomic(guarded.path("past.json"), json.dumps(past))


def retire(guarded, request):
    """
    Removes a cluster that belongs to nobody, if its fence still says what it said when the cluster was listed. None of
    the generations that had it can make it again.
    """
    above = request["above"]
    guard = guarded.acquire("guard", above)
    if fence.read_text(guarded.path("generation")) != request["expected"]:
        return {"isOthers": True, "left": []}
    guarded.write("floor", above)
    lock = guarded.settle(above)
    for node, group in request["nodeGroups"]:
        node_power.note_boot(guarded, node, group)
    left = make_cluster.remnants(request)
    os.close(lock)
    os.close(guard)
    return {"isOthers": False, "left": left}
