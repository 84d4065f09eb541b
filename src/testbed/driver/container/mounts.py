"""Mount calls that util-linux of Debian 12 has no command for: idmapped clones, detached trees, overlays by descriptor.

All functions raise OSError with the path in it. Imported by node-mounts.py and witness.py, which run as root.
"""
import ctypes
import os
import signal

libc = ctypes.CDLL(None, use_errno=True)

AT_EMPTY_PATH = 0x1000
AT_RECURSIVE = 0x8000
AT_SYMLINK_NOFOLLOW = 0x100
AT_NO_AUTOMOUNT = 0x800
OPEN_TREE_CLONE = 1
MOVE_MOUNT_F_EMPTY_PATH = 0x4
MOVE_MOUNT_T_EMPTY_PATH = 0x40
MOUNT_ATTR_RDONLY = 0x1
MOUNT_ATTR_NOSUID = 0x2
MOUNT_ATTR_NODEV = 0x4
MOUNT_ATTR_NOEXEC = 0x8
MOUNT_ATTR_IDMAP = 0x100000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_BIND, MS_REC, MS_PRIVATE, MS_SLAVE = 4096, 16384, 1 << 18, 1 << 19
MNT_DETACH = 2
CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000

# System call numbers are the same on every architecture since Linux 5.1, except on alpha.
SYS_openat2 = 437
SYS_open_tree = 428
SYS_move_mount = 429
SYS_mount_setattr = 442
RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS, RESOLVE_BENEATH = 2, 4, 8
SYS_pivot_root = {"x86_64": 155, "aarch64": 41, "riscv64": 41, "ppc64le": 203, "s390x": 217}

RANGE = 65536


class OpenHow(ctypes.Structure):
    _fields_ = [("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64)]


class MountAttr(ctypes.Structure):
    _fields_ = [
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    ]


def check(result, what):
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
    return result


def mount(source, target, kind, flags=0, data=""):
    check(libc.mount(source.encode(), target.encode(), kind.encode() if kind else None, flags, data.encode()),
          "mount %s on %s" % (kind or source, target))


def umount(target, flags=MNT_DETACH):
    check(libc.umount2(target.encode(), flags), "umount " + target)


def unshare(flags):
    check(libc.unshare(flags), "unshare")


def setns(fd, what):
    check(libc.setns(fd, 0), "enter the %s namespace" % what)


def open_beneath(dirfd, path, flags):
    """Opens a path below a folder without following any link on the way."""
    how = OpenHow(flags | os.O_CLOEXEC, 0, RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH)
    return check(libc.syscall(SYS_openat2, dirfd, path.encode(), ctypes.byref(how), ctypes.sizeof(how)), "open " + path)


def open_tree(dirfd, path, flags):
    """A detached clone of a mount tree; the descriptor keeps it alive."""
    return check(libc.syscall(SYS_open_tree, dirfd, path.encode(), flags | os.O_CLOEXEC), "open_tree " + path)


def move_mount(fd, target):
    """Attaches a detached tree at a path."""
    check(libc.syscall(SYS_move_mount, fd, b"", -100, target.encode(), MOVE_MOUNT_F_EMPTY_PATH), "move_mount " + target)


def set_attributes(fd, attr, recursive=False):
    flags = AT_EMPTY_PATH | (AT_RECURSIVE if recursive else 0)
    check(libc.syscall(SYS_mount_setattr, fd, b"", flags, ctypes.byref(attr), ctypes.sizeof(attr)), "mount_setattr")


def user_namespace(base):
    """A descriptor of a user namespace in which 0..65535 are base..base+65535 outside. Its process is gone on return."""
    ready_read, ready_write = os.pipe()
    done_read, done_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(done_write)
            unshare(CLONE_NEWUSER)
            os.write(ready_write, b".")
            os.read(done_read, 1)
        finally:
            os._exit(0)
    os.close(ready_write)
    os.close(done_read)
    try:
        if os.read(ready_read, 1) != b".":
            raise OSError(1, "user namespaces cannot be made", "unshare")
        for name in ("uid_map", "gid_map"):
            with open("/proc/%d/%s" % (pid, name), "w") as file:
                file.write("0 %d %d" % (base, RANGE))
        return os.open("/proc/%d/ns/user" % pid, os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(done_write)
        os.close(ready_read)
        os.waitpid(pid, 0)


def idmapped(folder, userns):
    """A detached read-only clone of a folder whose owners are shifted by the user namespace (None: as they are)."""
    fd = open_tree(-100, folder, OPEN_TREE_CLONE)
    attr = MountAttr(MOUNT_ATTR_RDONLY, 0, MS_PRIVATE, 0)
    if userns is not None:
        attr.attr_set |= MOUNT_ATTR_IDMAP
        attr.userns_fd = userns
    set_attributes(fd, attr)
    return fd


def attach_lowers(lowers, base, scratch):
    """Attaches the layers (bottom first) at scratch/0, 1, ...; returns overlay's lowerdir, top first. base 0: no shift."""
    userns = user_namespace(base) if base else None
    points = []
    for index, lower in enumerate(lowers):
        point = os.path.join(scratch, str(index))
        os.makedirs(point, exist_ok=True)
        fd = idmapped(lower, userns)
        move_mount(fd, point)
        os.close(fd)
        points.append(point)
    if userns is not None:
        os.close(userns)
    return ":".join(reversed(points))


def private_mounts():
    """From here on nothing that is mounted here is seen outside, and the host's mounts still leave when they leave there."""
    unshare(CLONE_NEWNS)
    mount("none", "/", None, MS_REC | MS_SLAVE)
