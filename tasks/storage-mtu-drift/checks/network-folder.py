#!/usr/bin/env python3
"""Prints, as JSON, whether the folders of networkd hold only settings that are in force.

A file counts as residue when networkd would not read it (a copy, a backup, a disabled variant), and so does one that
sets the old frame size again. A right fix may remove, edit or override the stale settings.
"""
import json
import os
import re

ROOT = "/etc/systemd/network"
READ_BY_NETWORKD = re.compile(r"\.(network|netdev|link)$")
DROP_IN = re.compile(r"\.(network|netdev|link)\.d$")


def entries(folder):
    with os.scandir(folder) as found:
        return sorted(found, key=lambda entry: entry.name)


def residue():
    for entry in entries(ROOT):
        if entry.is_dir(follow_symlinks=False):
            if not DROP_IN.search(entry.name):
                yield entry.path
                continue
            for inner in entries(entry.path):
                if inner.is_dir(follow_symlinks=False) or not inner.name.endswith(".conf"):
                    yield inner.path
        elif not READ_BY_NETWORKD.search(entry.name):
            yield entry.path


left = list(residue())
print(json.dumps({
    "pass": not left,
    "why": "only settings that are read lie in %s" % ROOT if not left else "left in the network folder: " + ", ".join(left),
    "left": left,
}))
