"""Gives a node its file system in a private mount namespace, then becomes the program that boots it.

Usage: node-mounts.py FOLDER BASE LOWER[:LOWER...] PROGRAM [ARGUMENT...]
FOLDER holds upper, work and merged; BASE is the shift of the layers' owners (0: they are shifted already);
LOWERs are the image's layers from the bottom up.
"""
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import mounts  # noqa: E402


def main():
    folder, base, lowers, argv = sys.argv[1], int(sys.argv[2]), sys.argv[3].split(":"), sys.argv[4:]
    mounts.private_mounts()
    # A file system of its own for nspawn's locks and sockets: nodes of equal name in two clusters would share them.
    os.makedirs("/run/systemd/nspawn", exist_ok=True)
    mounts.mount("tmpfs", "/run/systemd/nspawn", "tmpfs", 0, "mode=755")
    scratch = os.path.join(folder, "lowers")
    os.makedirs(scratch, exist_ok=True)
    mounts.mount("tmpfs", scratch, "tmpfs", 0, "mode=700")
    stack = mounts.attach_lowers(lowers, base, scratch)
    part = lambda name: os.path.join(folder, name)  # noqa: E731
    mounts.mount("overlay", part("merged"), "overlay", 0,
                 "lowerdir=%s,upperdir=%s,workdir=%s,metacopy=off,redirect_dir=off" % (stack, part("upper"), part("work")))
    os.execvp(argv[0], argv)


try:
    main()
except OSError as error:
    sys.stderr.write("infrabed: the node's file system cannot be mounted: %s\n" % error)
    sys.exit(71)
