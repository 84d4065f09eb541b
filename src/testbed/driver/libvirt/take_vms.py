"""Takes a cluster of virtual machines over from whoever had it: for another generation of its lease, or to remove it."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "container"))
import fence  # noqa: E402
import make_vms  # noqa: E402
import take_cluster  # noqa: E402
import vm_power  # noqa: E402


def take(guarded, request):
    """
    The machines run on. libvirtd carries a request out whose sender was killed: so each machine is asked for its state
    afterwards, which libvirtd answers in turn, behind what was begun.
    """
    take_cluster.take(guarded, request)
    for domain in request["domains"]:
        vm_power.state(request["uri"], domain)


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
    left = make_vms.remnants(request)
    os.close(lock)
    os.close(guard)
    return {"isOthers": False, "left": left}
