"""Tries an idmapped read-only layer below an overlay in FOLDER: status 0 if owners come out shifted.

Usage: mapping-probe.py FOLDER
"""
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import mounts  # noqa: E402

BASE = 0x70000000


def main():
    folder = sys.argv[1]
    part = lambda name: os.path.join(folder, name)  # noqa: E731
    for name in ("lower", "upper", "work", "merged", "lowers"):
        os.mkdir(part(name))
    with open(part("lower/file"), "w") as file:
        file.write("lower")
    mounts.private_mounts()
    stack = mounts.attach_lowers([part("lower")], BASE, part("lowers"))
    mounts.mount("overlay", part("merged"), "overlay", 0,
                 "lowerdir=%s,upperdir=%s,workdir=%s,metacopy=off,redirect_dir=off" % (stack, part("upper"), part("work")))
    if os.stat(part("merged/file")).st_uid != BASE:
        raise OSError(1, "owners are not shifted", folder)
    # A write has to arrive in the upper layer with the shifted owner, too.
    os.chmod(part("merged/file"), 0o600)
    if os.stat(part("upper/file")).st_uid != BASE:
        raise OSError(1, "a copied-up file has the wrong owner", folder)


try:
    main()
except OSError as error:
    sys.stderr.write("%s\n" % error)
    sys.exit(1)
