"""Looks on this node for strings that would give the task away: in files an agent may read, and in the journal.

Reads {"needles": [...]} as JSON from standard input, prints {"found": [[place, needle], ...], "files": N}.
"""
import json
import os
import stat
import subprocess
import sys

# Where programs of the image run, the node's own root is shown here (and with it its /proc and /sys).
ROOT = "/.node" if os.path.isdir("/.node/etc") else ""
SKIPPED = {"/proc", "/sys", "/dev", "/usr/bin", "/usr/sbin", "/usr/lib", "/usr/libexec", "/usr/share", "/usr/include", "/run/systemd", "/run/dbus", "/run/udev", "/var/lib/dpkg", "/var/lib/apt"}
LARGEST = 16 * 1024 * 1024

needles = [(needle, needle.encode()) for needle in json.load(sys.stdin)["needles"]]
found = []
files = 0


def search(place, content):
    for text, raw in needles:
        if raw in content:
            found.append([place, text])


for folder, folders, names in os.walk(ROOT or "/", followlinks=False):
    folders[:] = [name for name in folders if os.path.join(folder, name)[len(ROOT):] not in SKIPPED]
    for name in names:
        path = os.path.join(folder, name)
        try:
            about = os.lstat(path)
            if not stat.S_ISREG(about.st_mode) or about.st_size > LARGEST:
                continue
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with os.fdopen(handle, "rb") as file:
                content = file.read(LARGEST)
        except OSError:
            continue  # it went away while we walked, or cannot be read by anybody
        search(path[len(ROOT):], content)
        files += 1

journal = subprocess.run(
    ["journalctl", "--no-pager", "--all", "--quiet", "-o", "export"], stdin=subprocess.DEVNULL, capture_output=True, timeout=60
)
if journal.returncode != 0:
    sys.exit("journalctl failed: " + journal.stderr.decode("utf-8", "replace"))
search("journal", journal.stdout)
json.dump({"found": found, "files": files}, sys.stdout)
