"""Makes what a cluster has on the host beside its running nodes, and removes it again: under the fence's lock."""
import fcntl
import json
import os
import shutil
import subprocess
import sys
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import bmc_daemon  # noqa: E402
import fence  # noqa: E402
import groups  # noqa: E402


class NoRange(Exception):
    """All user id ranges of the machine are taken."""


def make(guarded, request, fill_by=None):
    """Claims the id, then makes record, network and files. The claim is refused to an older generation than the last."""
    generation, folder = request["generation"], request["folder"]
    guard = guarded.acquire("guard", generation)
    state, number = guarded.now()
    if state is not None and generation < number:
        raise fence.FencedOff("generation %d of the lease had the cluster after %d" % (number, generation))
    if state == "live" or os.path.exists(folder):
        raise fence.Conflict("Cluster \"%s\" exists already." % os.path.basename(folder))
    lock = guarded.acquire("lock", generation)
    os.makedirs(os.path.dirname(folder), mode=0o700, exist_ok=True)
    os.mkdir(folder, 0o700)
    guarded.write("live", generation)
    os.close(guard)
    # The change of the lock may let somebody in between: so it is checked again.
    fcntl.flock(lock, fcntl.LOCK_SH)
    guarded.check(generation)
    fence.stop_here("make")
    return (fill_by or fill)(guarded, request)


def fill(guarded, request):
    folder, state = request["folder"], request["state"]
    if request["registry"] is not None:
        state["uidBase"] = take_range(folder, **request["registry"])
    # The record comes before what it records: after a crash a sweep knows what to look for.
    fence.write_atomic(guarded.path("past.json"), json.dumps({**request["past"], "uidBase": state["uidBase"]}))
    fence.write_atomic(os.path.join(folder, "cluster.json"), json.dumps(state, indent=2) + "\n")
    network = Attempt(lambda: make_network(request["netns"], **request["network"]))
    os.mkdir(os.path.join(folder, "nodes"), 0o700)
    for node in request["nodes"]:
        make_node(node["folder"], node["entries"], state["uidBase"])
    network.result()
    return {"uidBase": state["uidBase"]}


class Attempt(threading.Thread):
    """Work beside other work, whose failure is that of whoever asks for the result."""

    def __init__(self, work):
        super().__init__()
        self.work, self.error = work, None
        self.start()

    def run(self):
        try:
            self.work()
        except Exception as error:  # noqa: BLE001
            self.error = error

    def result(self):
        self.join()
        if self.error is not None:
            raise self.error


def take_range(owner, folder, first, last, size):
    """A file made exclusively is the claim, so two processes never get the same."""
    os.makedirs(folder, mode=0o755, exist_ok=True)
    taken = set(os.listdir(folder))
    for slot in range(first, last + 1):
        if str(slot) in taken:
            continue
        try:
            fd = os.open(os.path.join(folder, str(slot)), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            continue
        with os.fdopen(fd, "w") as file:
            file.write(owner + "\n")
        return slot * size
    raise NoRange("All user id ranges of this machine are taken.")


def make_network(netns, commands, settings):
    run("ip", "netns", "add", netns)
    run("ip", "-netns", netns, "-batch", "-", text="".join(line + "\n" for line in commands))
    run("ip", "netns", "exec", netns, "sysctl", "-qw", *settings)


def run(*argv, text=None):
    done = subprocess.run(argv, input=text, capture_output=True, text=True, check=False,
                          stdin=subprocess.DEVNULL if text is None else None)
    if done.returncode != 0:
        raise OSError(5, "%s: %s" % (" ".join(argv), done.stderr.strip()))


def make_node(folder, entries, owner):
    """upper (with the entries, owned by the cluster's range), work and merged, and a console log to begin with."""
    os.mkdir(folder, 0o700)
    for part in ("upper", "work", "merged"):
        os.mkdir(os.path.join(folder, part), 0o755)
    for part in ("upper", "work"):
        os.chown(os.path.join(folder, part), owner, owner)
    for entry in entries:
        path = os.path.join(folder, "upper", entry["path"])
        if "content" not in entry:
            os.mkdir(path)
        else:
            with open(path, "x") as file:
                file.write(entry["content"])
        # Set apart from the creation, whose mode the umask would cut.
        os.chmod(path, entry["mode"])
        os.chown(path, owner, owner)
    os.close(os.open(os.path.join(folder, "console.log"), os.O_WRONLY | os.O_CREAT, 0o600))


def remove(guarded, request):
    """A cluster whose nodes are off. What may be left if this is killed is a sweep's to find."""
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
    """Groups, namespace, files, uid range; in this order. Returns what could not be removed, a sentence each."""
    left = []
    # It goes first: it could switch a node on behind us.
    bmc_daemon.stop_of(request["folder"])
    for group in request["clusterGroups"]:
        if not groups.empty(group):
            left.append("Processes in %s did not end although they were killed." % group)
            continue
        groups.remove(group)
    if left:
        return left
    if os.path.exists("/run/netns/" + request["netns"]):
        run("ip", "netns", "delete", request["netns"])
    try:
        shutil.rmtree(request["folder"])
    except FileNotFoundError:
        pass
    release_ranges(request["ranges"], request["folder"])
    return left


def release_ranges(folder, owner):
    """Every range that the owner claims."""
    for name in os.listdir(folder) if os.path.isdir(folder) else []:
        path = os.path.join(folder, name)
        if fence.read_text(path).strip() == owner:
            os.unlink(path)
