"""Copies a layer and adds an offset to every owner, keeping setuid bits and file capabilities.

Usage: shift-owners.py SOURCE TARGET OFFSET. TARGET must not exist.
"""
import os
import stat
import struct
import subprocess
import sys

VFS_CAP_REVISION_3 = 0x03000000


def shift(path, offset):
    status = os.lstat(path)
    capability = None
    if stat.S_ISREG(status.st_mode):
        if status.st_nlink > 1 and status.st_uid >= offset:
            return
        try:
            capability = os.getxattr(path, "security.capability", follow_symlinks=False)
        except OSError:
            pass
    os.lchown(path, status.st_uid + offset, status.st_gid + offset)
    if stat.S_ISREG(status.st_mode) and status.st_mode & 0o6000:
        # chown takes setuid and setgid away.
        os.chmod(path, stat.S_IMODE(status.st_mode))
    if capability is not None and len(capability) == 20:
        # Revision 2 means "of the host's root"; revision 3 names the root of the range.
        magic, = struct.unpack("<I", capability[:4])
        value = struct.pack("<I", VFS_CAP_REVISION_3 | (magic & 1)) + capability[4:] + struct.pack("<I", offset)
        os.setxattr(path, "security.capability", value, follow_symlinks=False)


def main():
    source, target, offset = sys.argv[1], sys.argv[2], int(sys.argv[3])
    subprocess.check_call(["cp", "--archive", "--reflink=auto", source, target])
    for folder, folders, files in os.walk(target):
        for name in folders + files:
            shift(os.path.join(folder, name), offset)
    shift(target, offset)


main()
