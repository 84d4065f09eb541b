"""Makes what a cluster of virtual machines has on the host beside the running machines, and removes it again."""
import json
import os
import shutil
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "container"))
import bmc_daemon  # noqa: E402
import fence  # noqa: E402
import groups  # noqa: E402
import make_cluster  # noqa: E402
import node_disk  # noqa: E402
import vm_power  # noqa: E402


def make(guarded, request):
    """The claim, its lock and its refusals are those of every cluster."""
    return make_cluster.make(guarded, request, fill)


def fill(guarded, request):
    """The record comes before what it records: after a crash a sweep knows what to look for."""
    folder = request["folder"]
    fence.write_atomic(guarded.path("past.json"), json.dumps(request["past"]))
    fence.write_atomic(os.path.join(folder, "cluster.json"), json.dumps(request["state"], indent=2) + "\n")
    network = make_cluster.Attempt(lambda: make_cluster.make_network(request["netns"], **request["network"]))
    os.mkdir(os.path.join(folder, "nodes"), 0o700)
    for passed in (os.path.dirname(folder), folder, os.path.join(folder, "nodes")):
        let_pass(passed)
    for node in request["nodes"]:
        os.mkdir(node["folder"], 0o700)
        node_disk.make(node["folder"], request["image"], node["entries"], node["disksMiB"])
        os.close(os.open(node["console"], os.O_WRONLY | os.O_CREAT, 0o600))
        for name in os.listdir(node["folder"]):
            os.chmod(os.path.join(node["folder"], name), 0o600)
        let_pass(node["folder"])
    network.result()
    return {}


def let_pass(folder):
    """To sockets and disks, for a hypervisor that runs machines as a user of its own. It names itself their owner."""
    os.chmod(folder, 0o711)


def remove(guarded, request):
    """A cluster whose machines are off. What may be left if this is killed is a sweep's to find."""
    left = remnants(request)
    if left:
        return {"left": left}
    generation = request["generation"]
    guard = guarded.acquire("guard", generation)
    guarded.check(generation)
    guarded.write("floor", generation)
    os.close(guard)
    return {"left": []}


def remnants(request):
    """BMCs, machines, namespace, files; in this order. Returns what could not be removed, a sentence each."""
    # They go first: they could switch a machine on behind us.
    bmc_daemon.stop_of(request["folder"])
    for group in request["clusterGroups"]:
        if not groups.empty(group):
            return ["Processes in %s did not end although they were killed." % group]
        groups.remove(group)
    try:
        for domain in vm_power.names(request["uri"]):
            # A node's name holds no dot, so that one cluster's prefix never begins another's name.
            prefix, _dot, node = domain.rpartition(".")
            if prefix == request["prefix"] and node:
                remove_machine(request["uri"], domain)
    except vm_power.PowerError as error:
        return [str(error)]
    if os.path.exists("/run/netns/" + request["netns"]):
        make_cluster.run("ip", "netns", "delete", request["netns"])
    try:
        shutil.rmtree(request["folder"])
    except FileNotFoundError:
        pass
    return []


def remove_machine(uri, domain):
    if vm_power.state(uri, domain) in vm_power.ON:
        vm_power.kill(uri, domain)
    if vm_power.state(uri, domain) is not None:
        vm_power.tell(uri, "undefine", domain)
