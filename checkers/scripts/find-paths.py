"""Prints, as JSON, which of the given paths or patterns exist. Links are reported, never followed.

The node's own tree is walked from the root of its init, since /usr of this process may be the pristine image's.
"""
import errno
import fnmatch
import json
import os
import re
import stat
import sys

parameters = json.loads(sys.argv[1])
limit = parameters["limit"]


def node_root():
    """A descriptor of the node's own root folder."""
    try:
        return os.open("/proc/1/root", os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return os.open("/", os.O_RDONLY | os.O_DIRECTORY)


def kind(mode):
    for test, name in ((stat.S_ISREG, "file"), (stat.S_ISDIR, "directory"), (stat.S_ISLNK, "symlink")):
        if test(mode):
            return name
    return "other"


def entry(folder, name):
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return None


def enter(folder, name):
    try:
        return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return None
        raise


def leads_to(prefix, folder, name):
    """The parts of the path that a link leads to, counted from the node's root."""
    target = os.readlink(name, dir_fd=folder)
    parts = [] if target.startswith("/") else [part for part in prefix.split("/") if part]
    for part in target.split("/"):
        if part == "..":
            parts = parts[:-1]
        elif part not in ("", "."):
            parts.append(part)
    return parts


def walk(folder, prefix, parts, links=0):
    """Yields (path, type) of everything that matches the remaining parts below an open folder.

    A link in the middle of a path is followed by hand, within the node's root; the last part never is.
    """
    head, rest = parts[0], parts[1:]
    if head == "**" and rest:
        yield from walk(folder, prefix, rest, links)
    deeper = parts if head == "**" else rest
    pattern = any(char in head for char in "*?[")
    for name in sorted(os.listdir(folder)) if pattern else [head]:
        if pattern and head != "**" and not fnmatch.fnmatchcase(name, head):
            continue
        seen = entry(folder, name)
        if seen is None:
            continue
        if not rest:
            yield prefix + "/" + name, kind(seen.st_mode)
        if not deeper:
            continue
        if stat.S_ISLNK(seen.st_mode) and head != "**" and links < 40:
            yield from walk(ROOT, "", leads_to(prefix, folder, name) + deeper, links + 1)
        inner = enter(folder, name) if stat.S_ISDIR(seen.st_mode) else None
        if inner is not None:
            try:
                yield from walk(inner, prefix + "/" + name, deeper, links)
            finally:
                os.close(inner)


def expression(glob):
    """The regular expression of a whole path: `**` crosses slashes, `*` and `?` do not."""
    parts = re.split(r"(\*\*|\*|\?|\[[^]]+\])", glob)
    words = {"**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(words.get(part) or (part if part.startswith("[") else re.escape(part)) for part in parts))


EXEMPT = [expression(glob) for glob in parameters["except"]]


def exempt(path):
    return any(one.fullmatch(path) for one in EXEMPT)


ROOT = node_root()


def main():
    found = {}
    for pattern in parameters["patterns"]:
        parts = [part for part in pattern.split("/") if part not in ("", ".")]
        if not parts or ".." in parts:
            sys.exit("a pattern must name something below / without '..': " + pattern)
        for path, what in walk(ROOT, "", parts):
            if not exempt(path):
                found[path] = what
    listed = [{"path": path, "type": found[path]} for path in sorted(found)[:limit]]
    print(json.dumps({"found": listed, "total": len(found)}))


main()
