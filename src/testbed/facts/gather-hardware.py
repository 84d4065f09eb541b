"""What a machine is made of, as one JSON object on standard output: memory, CPUs, disks, network cards, BMC firmware.

Runs under `python3 -I` and only reads: /proc, /sys, udev's database and, where there is a BMC, `ipmitool mc info`. What
could not be read is null, and `notes` says why: it must not be mistaken for something that is not there.
"""
import json
import os
import re
import subprocess
import sys

OPTIONS = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
ROOT = OPTIONS.get("root", "")
notes = {}


def text(*parts):
    """A small file's content without the blanks around it, or None."""
    try:
        with open(ROOT + os.path.join(*parts), "rb") as file:
            return file.read(65536).decode("utf-8", "replace").strip().strip("\0").strip()
    except OSError:
        return None


def exists(*parts):
    return os.path.exists(ROOT + os.path.join(*parts))


def run(*argv):
    """Standard output of a program; OSError where it is missing or fails."""
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=20, check=False)
    except subprocess.TimeoutExpired as error:
        raise OSError("%s did not end in time" % argv[0]) from error
    if done.returncode != 0:
        message = done.stderr.decode("utf-8", "replace").strip()[-200:]
        raise OSError("%s ended with %d: %s" % (" ".join(argv), done.returncode, message))
    return done.stdout.decode("utf-8", "replace")


def memory():
    """What the kernel has, or what its control group leaves to a container."""
    total = re.search(r"^MemTotal:\s+(\d+) kB", text("/proc/meminfo") or "", re.M)
    if total is None:
        raise OSError("/proc/meminfo does not tell MemTotal")
    limit = text("/sys/fs/cgroup/memory.max") or "max"
    return min(int(total.group(1)) * 1024, int(limit) if limit.isdigit() else sys.maxsize)


def cpus():
    """Logical CPUs online: `0-3,8-11`."""
    online = text("/sys/devices/system/cpu/online")
    if not online:
        raise OSError("/sys/devices/system/cpu/online cannot be read")
    ranges = [part.split("-") for part in online.split(",")]
    return sum(int(part[-1]) - int(part[0]) + 1 for part in ranges)


def udev(name):
    """Properties that udev keeps of a block device."""
    kept = text("/run/udev/data", "b" + (text("/sys/block", name, "dev") or "none")) or ""
    return dict(line[2:].split("=", 1) for line in kept.splitlines() if line.startswith("E:") and "=" in line)


def serial_of(name):
    """NVMe and virtio tell it in a file, SCSI in vital product data page 80h (SPC-5, 7.7.12: after four bytes)."""
    for parts in ((name, "device", "serial"), (name, "serial")):
        if text("/sys/block", *parts):
            return text("/sys/block", *parts)
    try:
        with open(ROOT + os.path.join("/sys/block", name, "device/vpd_pg80"), "rb") as file:
            page = file.read(4096)[4:].decode("utf-8", "replace").strip().strip("\0").strip()
            if page:
                return page
    except OSError:
        pass  # Not every kind of disk has this page; udev is asked next.
    return udev(name).get("ID_SERIAL_SHORT")


def wwn_of(name):
    """Only names that are unique in the world; `t10.` ones are made of model and serial."""
    for parts in ((name, "wwid"), (name, "device", "wwid")):
        wwid = text("/sys/block", *parts) or ""
        if wwid.startswith(("naa.", "eui.")):
            return wwid
    return udev(name).get("ID_WWN")


def disks():
    found = []
    for name in sorted(os.listdir(ROOT + "/sys/block")):
        # Loop devices, memory disks, mappings and arrays have no device behind them; type 5 reads optical discs.
        if not exists("/sys/block", name, "device") or text("/sys/block", name, "device/type") == "5":
            continue
        sectors = text("/sys/block", name, "size")
        if sectors == "0":
            continue
        size = int(sectors) * 512 if sectors and sectors.isdigit() else None
        found.append({"name": name, "serial": serial_of(name), "wwn": wwn_of(name), "sizeBytes": size})
    return found


def permanent_mac(name):
    """A bond lends its own address to its members, and people set others: the card's own is asked for then."""
    lent = text("/sys/class/net", name, "bonding_slave/perm_hwaddr")
    if lent:
        return lent
    if text("/sys/class/net", name, "addr_assign_type") != "3" or not exists("/sys/class/net", name, "device"):
        return text("/sys/class/net", name, "address")
    try:
        found = re.search(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}", run("ethtool", "-P", name), re.I)
        return found.group(0) if found else None
    except OSError as error:
        notes["nics"] = "%s: %s" % (name, error)
        return None


def nics():
    found = []
    for name in sorted(os.listdir(ROOT + "/sys/class/net")):
        is_link = (text("/sys/class/net", name, "type") == "1"
                   and "DEVTYPE=" not in (text("/sys/class/net", name, "uevent") or ""))
        is_card = exists("/sys/class/net", name, "device")
        if not is_link and not is_card:
            continue
        # Reading it fails while the link is down.
        speed = text("/sys/class/net", name, "speed") or ""
        found.append({"name": name, "mac": permanent_mac(name), "isCard": is_card,
                      "speedMbps": int(speed) if speed.isdigit() and int(speed) > 0 else None})
    return found


def bmc_firmware():
    if not any(exists(path) for path in ("/dev/ipmi0", "/dev/ipmi/0", "/dev/ipmidev/0")):
        notes["bmcFirmware"] = "there is no /dev/ipmi0"
        return None
    found = re.search(r"^Firmware Revision\s*:\s*(\S+)", run("ipmitool", "mc", "info"), re.M)
    if found is None:
        raise OSError("ipmitool mc info tells no firmware revision")
    return found.group(1)


def main():
    kinds = {"memoryBytes": memory, "cpus": cpus, "disks": disks, "nics": nics, "bmcFirmware": bmc_firmware}
    report = {}
    for kind, read in kinds.items():
        try:
            report[kind] = read()
        except (OSError, ValueError) as error:
            report[kind] = None
            notes[kind] = str(error)
    print(json.dumps({**report, "notes": notes}))


main()
