"""Stands for the firmware of a node: reads the boot override of its BMC at each boot, and uses up one that is for one boot.

Usage: firmware.py FOLDER. Prints the device: none, pxe, disk, cdrom or bios. The file is described in module/boot-options.c.
"""
import fcntl
import os
import sys
import time

DEVICES = {0: "none", 1: "pxe", 2: "disk", 5: "cdrom", 6: "bios"}
VALID, PERSISTENT = 0x80, 0x40


def main(folder):
    path = os.path.join(folder, "boot-options")
    lock = os.open(path + ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        with open(path) as file:
            options = {line.split()[0]: [int(word, 16) for word in line.split()[1:]] for line in file}
    except FileNotFoundError:
        return "none"
    flags, until = options["flags"], options["until"][0]
    if until and time.clock_gettime(time.CLOCK_BOOTTIME) * 1000 >= until:
        flags[0] &= ~VALID
    # A reset ends what was being set (IPMI 2.0, table 28-14, parameter 0).
    options["parameters"][0] = 0
    device = DEVICES.get(flags[1] >> 2 & 0xF, "none") if flags[0] & VALID else "none"
    options["until"] = [0]
    options["taken"] = [1 if flags[0] & VALID and flags[0] & PERSISTENT else 0]
    if not flags[0] & PERSISTENT:
        flags[0] &= ~VALID
    write(path, options)
    return device


def write(path, options):
    fd = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "w") as file:
        for name in ("parameters", "flags", "locked", "until", "taken"):
            file.write("%s %s\n" % (name, " ".join("%x" % number for number in options[name])))
    os.rename(path + ".new", path)


print(main(sys.argv[1]))
