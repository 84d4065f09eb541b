"""What a node is and has, as one JSON object on standard output.

Runs under `python3 -I` with programs that can be trusted. Files are read below init's own root
(/proc/1/root), so that the node's /usr is seen even where this program's own is a pristine one, and
every directory is opened relative to its parent without following a link, so that a planted link leads nowhere.
"""
import base64
import hashlib
import json
import os
import re
import stat
import subprocess
import sys
import time

OPTIONS = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}

# Contents are hashed here. What is under them and changes by the second is left out below.
TREES = ["/etc", "/root", "/home", "/usr/local", "/opt", "/srv", "/tmp", "/var/tmp", "/var/spool/cron",
         "/var/backups", "/var/lib"]
# Here size, mode, owner, mtime and ctime stand for the contents: thousands of files, of packages.
SYSTEM_TREES = ["/usr/bin", "/usr/sbin", "/usr/lib/systemd", "/usr/lib/udev", "/usr/lib/x86_64-linux-gnu",
                "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/libexec", "/boot"]
# Directories whose contents are data or caches; facts of them have their own kind (packages), or none.
PRUNED = [re.compile(pattern) for pattern in (
    r"/var/lib/(apt|dpkg|ceph|mysql|docker|containers|containerd)",
    r"/var/lib/systemd/(catalog|coredump|timers|timesync|rfkill|backlight|pstore|ephemeral-trees)",
    r"/var/lib/postgresql/[^/]+/[^/]+/[^/]+",
    r"/tmp/(systemd-private-.*|snap-private-tmp|\.(X11|ICE|XIM|font|Test)-unix)",
    r"/var/tmp/systemd-private-.*",
)]
MAX_ENTRIES = 60000
MAX_HASHED_BYTES = 64 * 1024 * 1024
NO_LINK = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK

notes = []


def run(*argv):
    """Standard output of a program, or None (with a note) where it is missing or fails."""
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        notes.append("%s: %s" % (argv[0], error))
        return None
    if done.returncode != 0:
        notes.append("%s ended with %d: %s" % (
            " ".join(argv), done.returncode, done.stderr.decode("utf-8", "replace").strip()[-200:]))
        return None
    return done.stdout.decode("utf-8", "replace")


def run_json(*argv):
    text = run(*argv)
    if text is None:
        return None
    return json.loads(text) if text.strip() else []


try:
    ROOT = os.open(OPTIONS.get("root", "/proc/1/root"), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
except OSError as failed:
    notes.append("init's root could not be opened, the program's own was read: %s" % failed)
    ROOT = os.open("/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def open_directory(path):
    """The directory's descriptor, reached component by component; None where one is absent or a link."""
    here = os.dup(ROOT)
    for part in [piece for piece in path.split("/") if piece]:
        try:
            below = os.open(part, os.O_RDONLY | os.O_DIRECTORY | NO_LINK, dir_fd=here)
        except OSError:
            os.close(here)
            return None
        os.close(here)
        here = below
    return here


def read_file(path, limit=4 * 1024 * 1024):
    """Bytes of a regular file below ROOT, or None."""
    folder, name = os.path.split(path)
    directory = open_directory(folder)
    if directory is None:
        return None
    try:
        handle = os.open(name, os.O_RDONLY | NO_LINK, dir_fd=directory)
    except OSError:
        return None
    finally:
        os.close(directory)
    with os.fdopen(handle, "rb") as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            return None
        return stream.read(limit)


def read_lines(path, limit=4 * 1024 * 1024):
    content = read_file(path, limit)
    return [] if content is None else content.decode("utf-8", "replace").splitlines()


def digest(directory, name):
    try:
        handle = os.open(name, os.O_RDONLY | NO_LINK, dir_fd=directory)
    except OSError:
        return "unreadable"
    with os.fdopen(handle, "rb") as stream:
        status = os.fstat(stream.fileno())
        if not stat.S_ISREG(status.st_mode):
            return "replaced"
        if status.st_size > MAX_HASHED_BYTES:
            return "size:%d" % status.st_size
        sha = hashlib.sha256()
        for block in iter(lambda: stream.read(1 << 20), b""):
            sha.update(block)
        return sha.hexdigest()


class Walk:
    def __init__(self, owners, groups):
        self.owners, self.groups, self.files = owners, groups, {}
        self.truncated = False

    def tree(self, path, hashed):
        directory = open_directory(path)
        if directory is not None:
            # The top itself is a fact too: its mode and owner matter.
            self.note(path, os.fstat(directory), None, None, hashed)
            self.inside(directory, path, hashed)

    def inside(self, directory, path, hashed):
        try:
            with os.scandir(directory) as entries:
                names = sorted(entry.name for entry in entries)
            for name in names:
                if len(self.files) >= MAX_ENTRIES:
                    self.truncated = True
                    return
                self.entry(directory, path + "/" + name, name, hashed)
        finally:
            os.close(directory)

    def entry(self, directory, path, name, hashed):
        try:
            status = os.lstat(name, dir_fd=directory)
        except OSError:
            return
        self.note(path, status, directory, name, hashed)
        if stat.S_ISDIR(status.st_mode) and not any(pattern.fullmatch(path) for pattern in PRUNED):
            try:
                below = os.open(name, os.O_RDONLY | os.O_DIRECTORY | NO_LINK, dir_fd=directory)
            except OSError:
                return
            self.inside(below, path, hashed)

    def note(self, path, status, directory, name, hashed):
        fact = {
            "mode": "%04o" % stat.S_IMODE(status.st_mode),
            "owner": self.owners.get(status.st_uid, str(status.st_uid)),
            "group": self.groups.get(status.st_gid, str(status.st_gid)),
        }
        if stat.S_ISREG(status.st_mode):
            fact["type"] = "file"
            fact["sizeBytes"] = status.st_size
            if hashed:
                fact["sha256"] = digest(directory, name)
            else:
                fact["stamp"] = "%d.%d" % (status.st_mtime_ns, status.st_ctime_ns)
        elif stat.S_ISLNK(status.st_mode):
            fact["type"] = "symlink"
            fact["target"] = os.readlink(name, dir_fd=directory)
        else:
            fact["type"] = "directory" if stat.S_ISDIR(status.st_mode) else "other"
        self.files[path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")] = fact


def passwords():
    """user -> locked, empty or a short hash of the password field: enough to see that it changed."""
    out = {}
    for line in read_lines("/etc/shadow"):
        fields = line.split(":")
        if len(fields) > 1:
            secret = fields[1]
            state = "empty" if secret == "" else "locked" if secret[0] in "!*" else None
            out[fields[0]] = state or "set:" + hashlib.sha256(secret.encode()).hexdigest()[:12]
    return out


def users_and_groups():
    users, groups, secrets = {}, {}, passwords()
    for line in read_lines("/etc/passwd"):
        fields = line.split(":")
        if len(fields) == 7 and fields[2].isdigit():
            users[fields[0]] = {"uid": int(fields[2]), "gid": fields[3], "home": fields[5], "shell": fields[6],
                                "password": secrets.get(fields[0], "none")}
    for line in read_lines("/etc/group"):
        fields = line.split(":")
        if len(fields) == 4 and fields[2].isdigit():
            groups[fields[0]] = {"gid": int(fields[2]), "members": sorted(filter(None, fields[3].split(",")))}
    return users, groups


def authorized_keys(users):
    out = []
    for name, user in users.items():
        for base in ("authorized_keys", "authorized_keys2"):
            for line in read_lines(user["home"].rstrip("/") + "/.ssh/" + base):
                match = re.search(r"((?:ssh|ecdsa|sk)-[^\s]+)\s+([A-Za-z0-9+/=]+)\s*(.*)$", line.strip())
                if line.lstrip().startswith("#") or match is None:
                    continue
                try:
                    raw = base64.b64decode(match.group(2), validate=True)
                except ValueError:
                    continue
                print_ = base64.b64encode(hashlib.sha256(raw).digest()).decode().rstrip("=")
                out.append({"user": name, "fingerprint": "SHA256:" + print_, "comment": match.group(3),
                            "options": line.strip()[:match.start()].strip()})
    return out


def active_lines(path):
    return [line.strip() for line in read_lines(path) if line.strip() and not line.lstrip().startswith("#")]


def names_in(path):
    directory = open_directory(path)
    if directory is None:
        return []
    try:
        return sorted(os.listdir(directory))
    finally:
        os.close(directory)


def line_files(paths, folders):
    out = {}
    for path in list(paths) + [folder + "/" + name for folder in folders for name in names_in(folder)]:
        lines = active_lines(path)
        if lines:
            out[path] = lines
    return out


def packages():
    out, current = {}, {}
    for line in read_lines("/var/lib/dpkg/status", 256 * 1024 * 1024) + [""]:
        if line == "":
            if current.get("Package") and not current.get("Status", "").endswith("not-installed"):
                out["%s:%s" % (current["Package"], current.get("Architecture", ""))] = {
                    "version": current.get("Version", ""), "status": current.get("Status", "")}
            current = {}
        elif line[0] not in " \t":
            key, _, value = line.partition(":")
            if key in ("Package", "Architecture", "Version", "Status"):
                current[key] = value.strip()
    return out


def wait_for_jobs(limit_sec=10):
    """While units are still being started (after a boot), their states are on the way, not facts."""
    end = time.monotonic() + limit_sec
    while (run("systemctl", "list-jobs", "--no-legend", "--no-pager") or "").strip():
        if time.monotonic() >= end:
            notes.append("units were still being started or stopped after %d s" % limit_sec)
            return
        time.sleep(0.2)


def units():
    wait_for_jobs()
    files = run_json("systemctl", "list-unit-files", "--all", "--no-pager", "--output=json")
    loaded = run_json("systemctl", "list-units", "--all", "--no-pager", "--output=json")
    # A running system always has units: no unit at all means that systemctl did not ask.
    if not files or not loaded:
        notes.append("systemctl listed no unit")
        return None
    out = {row["unit_file"]: {"enabled": row["state"]} for row in files}
    for row in loaded:
        out.setdefault(row["unit"], {}).update(load=row["load"], active=row["active"], sub=row["sub"])
    return out


def timers():
    rows = run_json("systemctl", "list-timers", "--all", "--no-pager", "--output=json")
    return None if rows is None else {row["unit"]: row.get("activates") or "" for row in rows if row.get("unit")}


def mounts():
    out = []
    with open("/proc/1/mountinfo", encoding="utf-8", errors="replace") as table:
        for line in table:
            left, _, right = line.rstrip("\n").partition(" - ")
            fields, more = left.split(" "), right.split(" ")
            out.append({"target": fields[4].encode().decode("unicode_escape", "replace"), "root": fields[3],
                        "options": fields[5], "type": more[0], "source": more[1]})
    return out


def sockets():
    text, out = run("ss", "-H", "-lntup"), []
    if text is None:
        return None
    for line in text.splitlines():
        fields = line.split()
        if len(fields) >= 5:
            names = sorted(set(re.findall(r'\("((?:[^"\\]|\\.)*)",pid=', " ".join(fields[5:]))))
            out.append({"protocol": fields[0], "local": fields[4], "processes": names})
    return out


def firewall():
    """Tables of the stateless ruleset (no counters, no handles), text by `family name`."""
    text, out, name = run("nft", "-s", "list", "ruleset"), {}, None
    if text is None:
        return None
    for line in text.splitlines():
        opened = re.match(r"table (\S+) (\S+) \{", line)
        if opened:
            name = opened.group(1) + " " + opened.group(2)
            out[name] = []
        if name is not None and line.strip():
            out[name].append(line.rstrip())
    return {table: "\n".join(lines) for table, lines in out.items()}


# Only values that belong to the node: a container sees the host's vm.* and most of kernel.*.
SYSCTL_FOLDERS = ["net/ipv4", "net/ipv6", "net/core", "net/netfilter", "net/unix"]
SYSCTL_FILES = ["kernel/hostname", "kernel/domainname", "kernel/shmmax", "kernel/shmall", "kernel/sem",
                "kernel/msgmax", "vm/swappiness", "vm/overcommit_memory", "vm/overcommit_ratio", "vm/dirty_ratio",
                "vm/dirty_background_ratio", "vm/nr_hugepages", "fs/file-max", "fs/nr_open", "fs/suid_dumpable",
                "fs/protected_symlinks", "fs/protected_hardlinks", "fs/protected_fifos", "fs/protected_regular",
                "kernel/randomize_va_space", "kernel/kptr_restrict", "kernel/dmesg_restrict", "kernel/sysrq",
                "kernel/panic", "kernel/pid_max", "kernel/threads-max", "kernel/core_pattern",
                "kernel/unprivileged_bpf_disabled", "kernel/yama/ptrace_scope"]


def sysctls():
    out = {}
    paths = ["/proc/sys/" + name for name in SYSCTL_FILES]
    for folder in SYSCTL_FOLDERS:
        for here, folders, names in os.walk("/proc/sys/" + folder):
            folders[:] = [name for name in folders if name != "neigh"]
            paths.extend(here + "/" + name for name in names)
    for path in paths:
        try:
            with open(path, encoding="utf-8", errors="replace") as value:
                out[path[len("/proc/sys/"):].replace("/", ".")] = " ".join(value.read(4096).split())
        except OSError:
            continue
    return out


def routes():
    out = []
    for family in ("-4", "-6"):
        rows = run_json("ip", "-j", family, "route", "show", "table", "all")
        if rows is None:
            return None
        for row in rows:
            if row.get("table") == "local" or row.get("type") in ("local", "broadcast", "multicast", "anycast"):
                continue
            out.append({"family": "inet" if family == "-4" else "inet6", "destination": row.get("dst", ""),
                        "table": str(row.get("table", "main")), "device": row.get("dev", ""),
                        "gateway": row.get("gateway", ""), "protocol": row.get("protocol", ""),
                        "metric": row.get("metric", 0), "type": row.get("type", "unicast"),
                        "options": " ".join("%s %s" % (k, v) for m in row.get("metrics", []) for k, v in m.items())})
    return out


def rules():
    out = []
    for family in ("-4", "-6"):
        rows = run_json("ip", "-j", family, "rule", "show")
        if rows is None:
            return None
        for row in rows:
            out.append(family + " " + " ".join("%s=%s" % (key, row[key]) for key in sorted(row)))
    return out


def links():
    rows, out = run_json("ip", "-j", "address", "show"), {}
    if rows is None:
        return None
    for row in rows:
        out[row["ifname"]] = {
            "mtu": row.get("mtu", 0), "flags": sorted(row.get("flags", [])), "master": row.get("master", ""),
            "addresses": sorted("%s/%s" % (a.get("local", ""), a.get("prefixlen", "")) for a in row.get("addr_info", [])),
        }
    return out


def main():
    begun = time.monotonic()
    users, groups = users_and_groups()
    walk = Walk({user["uid"]: name for name, user in reversed(list(users.items()))},
                {group["gid"]: name for name, group in reversed(list(groups.items()))})
    for path in dict.fromkeys(TREES + list(OPTIONS.get("trees", []))):
        walk.tree(path, True)
    for path in SYSTEM_TREES:
        walk.tree(path, False)
    if walk.truncated:
        notes.append("more than %d files: the rest was not looked at" % MAX_ENTRIES)
    facts = {
        "packages": packages(), "units": units(), "timers": timers(), "files": walk.files, "users": users,
        "groups": groups, "authorizedKeys": authorized_keys(users),
        "sudoers": line_files(["/etc/sudoers"], ["/etc/sudoers.d"]),
        "cron": line_files(["/etc/crontab"], ["/etc/cron.d", "/var/spool/cron/crontabs"]),
        "mounts": mounts(), "sockets": sockets(), "firewall": firewall(), "sysctls": sysctls(),
        "routes": routes(), "rules": rules(), "links": links(), "notes": notes,
    }
    facts["scriptMs"] = round((time.monotonic() - begun) * 1000)
    json.dump(facts, sys.stdout, separators=(",", ":"))


main()
