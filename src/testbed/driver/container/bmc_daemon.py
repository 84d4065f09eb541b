"""The supervisor of a cluster's virtual BMCs: started, stopped, and given other passwords, under the fence's lock."""
import base64
import errno
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import fence  # noqa: E402
import groups  # noqa: E402

LAUNCH = "bmc-launch.json"


def start(_guarded, request):
    """Writes what the BMCs are made of and starts them. Does not wait for them: whoever uses one first does."""
    for bmc in request["bmcs"]:
        os.mkdir(bmc["folder"], 0o700)
        os.mkdir(os.path.join(bmc["folder"], "state"), 0o700)
        for file in bmc["files"]:
            write(os.path.join(bmc["folder"], file["name"]), file["content"])
    # What a take-over and a removal need to know.
    write(os.path.join(request["folder"], LAUNCH), json.dumps(request["launch"]))
    write(request["config"]["path"], json.dumps(request["config"]["content"]))
    launch(request["launch"])


def launch(how):
    # Here, since node_power asks for as much of us.
    import node_power
    if how["unit"] is None:
        node_power.start_supervisor(how)
        return
    started = subprocess.run(how["argv"], capture_output=True, text=True, timeout=60, check=False)
    if started.returncode != 0:
        raise node_power.PowerError("The unit of the BMCs could not be started: %s" % started.stderr.strip())


def stop(_guarded, request):
    stop_of(request["folder"])


def stop_of(folder):
    """Everything of the BMCs at once, if the cluster has any."""
    text = fence.read_text(os.path.join(folder, LAUNCH))
    if not text:
        return
    how = json.loads(text)
    if how["unit"] is not None:
        for verb in (["kill", "--signal=KILL"], ["stop"], ["reset-failed"]):
            subprocess.run(["systemctl", *verb, how["unit"]], capture_output=True, timeout=60, check=False)
    if not groups.empty(how["group"]):
        raise OSError(errno.EBUSY, "processes did not end although they were killed", how["group"])
    for group in how["groups"]:
        groups.remove(group)


def change_passwords(folder):
    """The controller's account belongs to one generation of the lease: the one before it gets in no more."""
    text = fence.read_text(os.path.join(folder, LAUNCH))
    if not text:
        return
    nodes = os.path.join(folder, "nodes")
    for node in os.listdir(nodes):
        path = os.path.join(nodes, node, "bmc", "password")
        if os.path.exists(path):
            password = base64.b32encode(os.urandom(10)).decode().lower()
            fence.write_atomic(path, password + "\n")
    # They read it when they start; event log, accounts and settings are kept meanwhile.
    stop_of(folder)
    launch(json.loads(text))


def write(path, content):
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(content)
