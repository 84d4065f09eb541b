"""The disks of one virtual machine: an overlay over the image's shared disk with the machine's own files, and data disks."""
import json
import os
import struct
import subprocess

# Offsets in an ext4 inode (Linux, Documentation/filesystems/ext4/inodes.rst): i_size_lo; i_size_high stays 0.
SIZE_OFFSET = 4


class TooLong(Exception):
    """A file of the node is longer than its place on the disk."""


def run(*argv):
    done = subprocess.run(argv, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise OSError(5, "%s: %s" % (" ".join(argv), done.stderr.strip()))


def make(folder, image, entries, disks_mib):
    """root.qcow2 and data0.qcow2, data1.qcow2, ... in the node's folder."""
    overlay = os.path.join(folder, "root.qcow2")
    run("qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", os.path.join(image, "root.raw"), overlay)
    write_blocks(folder, overlay, patched(image, entries))
    for number, size in enumerate(disks_mib):
        run("qemu-img", "create", "-q", "-f", "qcow2", os.path.join(folder, "data%d.qcow2" % number), "%dM" % size)


def patched(image, entries):
    """The blocks of the shared disk that differ for this node, by their offset."""
    with open(os.path.join(image, "disk.json")) as file:
        record = json.load(file)
    size = record["blockBytes"]
    blocks = {}
    with open(os.path.join(image, "root.raw"), "rb") as disk:
        for entry in entries:
            content = entry["content"].encode()
            place = record["files"][entry["path"]]
            if not 0 < len(content) <= size:
                raise TooLong("/%s has %d bytes, and 1 to %d have room" % (entry["path"], len(content), size))
            blocks[place["data"]] = bytearray(content.ljust(size, b"\0"))
            start = place["inode"] - place["inode"] % size
            if start not in blocks:
                disk.seek(start)
                blocks[start] = bytearray(disk.read(size))
            struct.pack_into("<I", blocks[start], place["inode"] - start + SIZE_OFFSET, len(content))
    return blocks


def write_blocks(folder, overlay, blocks):
    """qemu-io takes what it writes from a file: private keys are in it, so it is only ours to read and goes again."""
    source = os.path.join(folder, ".blocks")
    commands = []
    try:
        for number, (offset, block) in enumerate(sorted(blocks.items())):
            part = "%s.%d" % (source, number)
            with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(block)
            commands += ["-c", "write -q -s %s %d %d" % (part, offset, len(block))]
        run("qemu-io", "-f", "qcow2", *commands, overlay)
    finally:
        for name in os.listdir(folder):
            if name.startswith(".blocks"):
                os.unlink(os.path.join(folder, name))
