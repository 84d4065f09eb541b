"""Makes the disk that virtual machines of one image share: a boot loader and one ext4 partition with the image's layers.

Usage: make-root-disk.py OUT SIZE-MIB LOWER[:LOWER...] PLACEHOLDERS, in a mount namespace of its own. LOWERs are the
layers as overlayfs takes them, the topmost first; PLACEHOLDERS is JSON, a list of {"path", "mode"} (with "isFolder" for
a folder, which come before what is in them). Leaves in OUT: root.raw, vmlinuz, initrd.img and disk.json, which says
where on the disk each placeholder lies, so that a node's own files can be written into its overlay without mounting it.
"""
import json
import os
import re
import shutil
import struct
import subprocess
import sys

SECTOR = 512
BLOCK = 4096
# Where every partitioner of today begins; the boot loader lies before it.
PARTITION = 2048 * SECTOR
PLACEHOLDER = b"\n" * BLOCK


def run(*argv):
    done = subprocess.run(argv, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        sys.exit("%s: %s" % (" ".join(argv), done.stderr.strip()))
    return done.stdout


def plant(upper, placeholders):
    """Files of one block each, whose content and length each node gets of its own."""
    for entry in placeholders:
        path = os.path.join(upper, entry["path"])
        if entry.get("isFolder"):
            os.mkdir(path)
        else:
            with open(path, "xb") as file:
                file.write(PLACEHOLDER)
        os.chmod(path, entry["mode"])


def boot_sectors(root, size):
    """The first sectors of the disk, after GRUB's grub-bios-setup: boot.img reads core.img from the sector behind it."""
    boot = open(os.path.join(root, "boot/grub/boot.img"), "rb").read()
    core = open(os.path.join(root, "boot/grub/core.img"), "rb").read()
    if SECTOR + len(core) > PARTITION:
        sys.exit("core.img of GRUB is too large for the gap before the first partition")
    # One entry: active, Linux, by sector numbers only (cylinders and heads at their maximum).
    entry = struct.pack("<B3sB3sII", 0x80, b"\xfe\xff\xff", 0x83, b"\xfe\xff\xff",
                        PARTITION // SECTOR, (size - PARTITION) // SECTOR)
    table = struct.pack("<I", 0x1B0FBED0) + b"\0\0" + entry + b"\0" * 48 + b"\x55\xaa"
    return boot[:440] + table + core


def locate(disk, paths):
    """Byte offsets on the disk: of each file's inode and of its one block."""
    commands = "".join("imap /%s\nblocks /%s\n" % (path, path) for path in paths)
    asked = subprocess.run(["debugfs", "-f", "-", "%s?offset=%d" % (disk, PARTITION)], input=commands,
                           capture_output=True, text=True, check=True).stdout
    inodes = re.findall(r"located at block (\d+), offset (0x[0-9a-f]+)", asked)
    blocks = re.findall(r"^debugfs: blocks \S+\n(\d+) *$", asked, re.MULTILINE)
    if len(inodes) != len(paths) or len(blocks) != len(paths):
        sys.exit("the placeholders cannot be found on the disk: %s" % asked[-500:])
    return {
        path: {"inode": PARTITION + int(block) * BLOCK + int(offset, 16), "data": PARTITION + int(data) * BLOCK}
        for path, (block, offset), data in zip(paths, inodes, blocks)
    }


def main():
    out, size, lowers, placeholders = sys.argv[1], int(sys.argv[2]) << 20, sys.argv[3], json.loads(sys.argv[4])
    upper, work, root, disk = (os.path.join(out, name) for name in ("upper", "work", "mount", "root.raw"))
    for folder in (upper, work, root):
        os.mkdir(folder, 0o755)
    plant(upper, placeholders)
    run("mount", "-t", "overlay", "overlay", "-o", "lowerdir=%s,upperdir=%s,workdir=%s,metacopy=off,redirect_dir=off"
        % (lowers, upper, work), root)
    for name in ("vmlinuz", "initrd.img"):
        shutil.copyfile(os.path.realpath(os.path.join(root, name)), os.path.join(out, name))
    with open(disk, "xb") as file:
        file.write(boot_sectors(root, size))
        file.truncate(size)
    # Without checksums of metadata an inode can be given its length by itself (see node_disk.py).
    run("mke2fs", "-q", "-F", "-t", "ext4", "-L", "root", "-b", str(BLOCK), "-I", "256", "-N", "131072", "-J", "size=16",
        "-O", "^metadata_csum,^64bit",
        "-E", "offset=%d,lazy_itable_init=0,lazy_journal_init=1,root_owner=0:0" % PARTITION,
        "-d", root, disk, "%dk" % ((size - PARTITION) // 1024))
    run("umount", root)
    files = [entry["path"] for entry in placeholders if not entry.get("isFolder")]
    record = {"version": 1, "sizeBytes": size, "blockBytes": BLOCK, "files": locate(disk, files)}
    with open(os.path.join(out, "disk.json"), "w") as file:
        json.dump(record, file, indent=2)
    for folder in (upper, work, root):
        shutil.rmtree(folder)


main()
