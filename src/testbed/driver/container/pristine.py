"""The root folder that a pristine command of witness.py sees, made in a mount namespace of ours.

/usr and what belongs to it come from the image's read-only layers, and so do the settings that loaders and interpreters
take from /etc; everything else is the node's. /.node shows the node's own root as it is, read-only.
"""
import errno
import os
import stat

import mounts

PROGRAM_FOLDERS = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32")
# Settings by which a loader or an interpreter can be made to run something else than the program that was asked for.
PRISTINE_SETTINGS = (
    "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "perl", "ssl/openssl.cnf",
    "pam.d/runuser", "pam.d/runuser-l",
)
DEVICES = ("null", "zero", "full", "random", "urandom")


def clone_node_root(namespaces):
    """A detached private clone of all that the node has mounted."""
    own = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    root = os.open("/", os.O_PATH | os.O_CLOEXEC)
    mounts.setns(namespaces["mnt"], "mount")
    try:
        fd = mounts.open_tree(-100, "/", mounts.OPEN_TREE_CLONE | mounts.AT_RECURSIVE)
    finally:
        mounts.setns(own, "mount")
        os.fchdir(root)
        os.chroot(".")
        os.close(own)
        os.close(root)
    mounts.set_attributes(fd, mounts.MountAttr(0, 0, mounts.MS_PRIVATE, 0), recursive=True)
    return fd


def bind(source, target):
    """Clones a tree without following a link at its end, and attaches it."""
    flags = mounts.OPEN_TREE_CLONE | mounts.AT_RECURSIVE | mounts.AT_SYMLINK_NOFOLLOW | mounts.AT_NO_AUTOMOUNT
    fd = mounts.open_tree(-100, source, flags)
    mounts.move_mount(fd, target)
    os.close(fd)


def bind_beneath(folder, path, target):
    """The same for a path below a folder that may lead through links of the node's making: none is followed."""
    source = mounts.open_beneath(folder, path, os.O_PATH)
    fd = mounts.open_tree(source, "", mounts.OPEN_TREE_CLONE | mounts.AT_RECURSIVE | mounts.AT_EMPTY_PATH)
    mounts.move_mount(fd, target)
    os.close(fd)
    os.close(source)


def is_folder(path):
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def copy_setting(source, target):
    """Copies a file, link or folder of the image; a folder hides the node's of the same name altogether."""
    status = os.lstat(source)
    if stat.S_ISDIR(status.st_mode):
        os.mkdir(target, 0o755)
        os.setxattr(target, "trusted.overlay.opaque", b"y")
        for name in os.listdir(source):
            copy_setting(os.path.join(source, name), os.path.join(target, name))
    elif stat.S_ISLNK(status.st_mode):
        os.symlink(os.readlink(source), target)
    elif stat.S_ISREG(status.st_mode):
        with open(source, "rb") as file, open(target, "wb") as copy:
            copy.write(file.read())
        os.chmod(target, stat.S_IMODE(status.st_mode))
    os.lchown(target, status.st_uid, status.st_gid)


def make_settings(image, folder, base):
    """The layer that stands on top of the node's /etc."""
    os.mkdir(folder, 0o755)
    os.chown(folder, base, base)
    names = list(PRISTINE_SETTINGS)
    names += [name for name in os.listdir(image + "/etc") if name.startswith("python3")]
    for name in names:
        source, target = os.path.join(image, "etc", name), os.path.join(folder, name)
        parent = os.path.dirname(target)
        if not os.path.isdir(parent):
            os.mkdir(parent, 0o755)
            os.chown(parent, base, base)
        if os.path.lexists(source):
            copy_setting(source, target)
        else:
            # A character device 0:0 is overlay's sign for "not there, whatever is below".
            os.mknod(target, stat.S_IFCHR, os.makedev(0, 0))
    preload = os.path.join(folder, "ld.so.preload")
    with open(preload, "w"):
        pass
    os.chown(preload, base, base)


def show_etc(root, node_root, settings, mountinfo):
    node_etc = root + "/.node/etc"
    os.mkdir(root + "/etc")
    if not is_folder(node_etc):
        bind(settings, root + "/etc")
        return
    mounts.mount("overlay", root + "/etc", "overlay", mounts.MS_RDONLY,
                 "lowerdir=%s:%s,metacopy=off,redirect_dir=nofollow" % (settings, node_etc))
    for line in mountinfo.splitlines():
        # An overlay does not show what is mounted inside its layers; the node's programs see it, so we do.
        point = line.split(" ")[4].encode().decode("unicode_escape")
        if not point.startswith("/etc/") or point[5:].split("/")[0].startswith("ld.so"):
            continue
        try:
            bind_beneath(node_root, point[1:], root + point)
        except OSError as error:
            # Gone, or covered, since the table was read; EXDEV and ELOOP: a link is in the way.
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.EINVAL, errno.ELOOP, errno.EXDEV):
                raise


def show_node(root, node_root, mountinfo, settings):
    """Everything of the node's own top level that the image does not replace."""
    node = root + "/.node"
    for name in os.listdir(node):
        source, target = os.path.join(node, name), os.path.join(root, name)
        if name in PROGRAM_FOLDERS or name in ("etc", "proc", "sys", ".node"):
            continue
        mode = os.lstat(source).st_mode
        if stat.S_ISDIR(mode):
            os.mkdir(target)
            bind(source, target)
        elif stat.S_ISLNK(mode):
            os.symlink(os.readlink(source), target)
        elif stat.S_ISREG(mode):
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o600))
            bind(source, target)
    show_etc(root, node_root, settings, mountinfo)
    for name in DEVICES:
        target = root + "/dev/" + name
        if os.path.lexists(target) and not os.path.islink(target) and not is_folder(target):
            bind("/dev/" + name, target)


def make_root(request, namespaces, mountinfo):
    """Builds the folder that becomes the command's root; returns its path and a descriptor of the node's own root."""
    mounts.private_mounts()
    scratch = request["scratch"]
    os.makedirs(scratch, exist_ok=True)
    mounts.mount("tmpfs", scratch, "tmpfs", 0, "mode=755")
    part = lambda name: os.path.join(scratch, name)  # noqa: E731
    for name in ("lowers", "image", "root"):
        os.mkdir(part(name), 0o755)
    base = request["base"]
    stack = mounts.attach_lowers(request["lowers"], base if request["idmapped"] else 0, part("lowers"))
    image = part("image")
    if ":" in stack:
        mounts.mount("overlay", image, "overlay", mounts.MS_RDONLY,
                     "lowerdir=%s,metacopy=off,redirect_dir=nofollow" % stack)
    else:
        image = stack
    root = part("root")
    mounts.mount("tmpfs", root, "tmpfs", 0, "mode=755")
    os.chown(root, base, base)
    for name in os.listdir(image):
        if name not in PROGRAM_FOLDERS:
            continue
        source, target = os.path.join(image, name), os.path.join(root, name)
        if os.path.islink(source):
            os.symlink(os.readlink(source), target)
            os.lchown(target, base, base)
        else:
            os.mkdir(target)
            bind(source, target)
    for name in (".node", "proc", "sys"):
        os.mkdir(os.path.join(root, name), 0o755)
    node_root = clone_node_root(namespaces)
    mounts.move_mount(node_root, root + "/.node")
    make_settings(image, part("settings"), base)
    show_node(root, node_root, mountinfo, part("settings"))
    keep_boot_id(node_root, part("boot_id"))
    read_only = mounts.MountAttr(mounts.MOUNT_ATTR_RDONLY, 0, 0, 0)
    mounts.set_attributes(node_root, read_only, recursive=True)
    return root, node_root


def keep_boot_id(node_root, path):
    """A copy of the boot's identity, which on the node is a mount of a file that has no name any more."""
    try:
        source = mounts.open_beneath(node_root, "proc/sys/kernel/random/boot_id", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        # Taken away on the node: then the command finds what the kernel says, which is the host's.
        return
    text = os.read(source, 64) if stat.S_ISREG(os.fstat(source).st_mode) else b""
    os.close(source)
    with open(path, "wb") as file:
        file.write(text)


def enter_root(root, node_root):
    """Kernel file systems of the node's namespaces, then the switch of root. Runs in the node's process namespace."""
    flags = mounts.MS_NOSUID | mounts.MS_NODEV | mounts.MS_NOEXEC
    mounts.mount("proc", root + "/proc", "proc", flags)
    mounts.mount("sysfs", root + "/sys", "sysfs", flags | mounts.MS_RDONLY)
    boot_id = root + "/../boot_id"
    if os.path.exists(boot_id):
        bind(boot_id, root + "/proc/sys/kernel/random/boot_id")
    try:
        bind_beneath(node_root, "sys/fs/cgroup", root + "/sys/fs/cgroup")
    except OSError as error:
        # Taken away on the node: then there is none to be shown.
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EXDEV):
            raise
    os.chdir(root)
    number = mounts.SYS_pivot_root[os.uname().machine]
    mounts.check(mounts.libc.syscall(number, b".", b"."), "pivot_root")
    mounts.umount(".")
    os.chdir("/")
