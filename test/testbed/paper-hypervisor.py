"""Carries power acts out on a machine that exists on paper only: vm_power.py as it is, with a hypervisor in memory.

Usage: paper-hypervisor.py FOLDER ACT..., where an act is on, off, reset, restarted, or
override=BYTE,BYTE (the first two bytes of the boot flags). Prints a line an act: the state, what the machine that runs was
started from, and how often it was started.
"""
import os
import sys

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "src", "testbed", "driver", "libvirt"))
import vm_power  # noqa: E402

machine = {"state": None, "defined": None, "live": None, "starts": 0}


def ask(_uri, *words):
    verb = words[0]
    if verb == "domstate":
        return (0, machine["state"], "") if machine["state"] else (1, "", "error: failed to get domain 'm'")
    if verb == "define":
        with open(words[1]) as file:
            machine["defined"] = file.read()
        machine["state"] = machine["state"] or "shut off"
    elif verb == "start":
        if machine["state"] != "shut off":
            return 1, "", "error: Domain is already active"
        machine.update(state="paused", live=machine["defined"], starts=machine["starts"] + 1)
    elif verb == "resume":
        machine["state"] = "running"
    elif verb == "destroy":
        machine.update(state="shut off", live=None)
    elif verb != "reset":
        return 1, "", "error: unknown command: '%s'" % verb
    return 0, "", ""


def set_flags(folder, first, second):
    with open(os.path.join(folder, "bmc", "boot-options"), "w") as file:
        file.write("parameters 0 0 0 0 0\nflags %s %s 0 0 0\nlocked 0\nuntil 0\ntaken 0\n" % (first, second))


def main():
    folder = sys.argv[1]
    os.makedirs(os.path.join(folder, "bmc"), exist_ok=True)
    vm_power.ask = ask
    vm_power.attach = lambda _request: None
    request = {"uri": "paper", "domain": "m", "node": "node0", "cluster": "c", "generation": 1, "folder": folder,
               "log": os.path.join(folder, "power.log"),
               "definitions": {device: device for device in ("none", "disk", "pxe", "cdrom", "bios")}}
    for act in sys.argv[2:]:
        name, _equals, value = act.partition("=")
        if name == "override":
            set_flags(folder, *value.split(","))
        else:
            {"on": vm_power.on, "off": vm_power.off, "reset": vm_power.reset,
             "restarted": vm_power.restarted}[name](None, request)
        print(act, machine["state"], machine["live"], machine["starts"])


main()
