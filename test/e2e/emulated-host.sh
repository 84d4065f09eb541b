#!/bin/bash
# Boots this machine's own system once more, as a container that has systemd for its init, so that the mode with host
# systemd can be tried where the host has none. Writes go to memory; only the folders given are shared.
# Usage: emulated-host.sh GROUP FOLDER SHARED...     GROUP: name of a control group, FOLDER: an empty folder
set -eu
if [ "${IB_IN_MOUNTS:-}" != yes ]; then IB_IN_MOUNTS=yes exec unshare --mount --propagation slave "$0" "$@"; fi
group=$1 folder=$2
shift 2
for hierarchy in systemd unified .; do
  [ -e "/sys/fs/cgroup/$hierarchy/cgroup.procs" ] || continue
  mkdir -p "/sys/fs/cgroup/$hierarchy/$group"
  echo $$ > "/sys/fs/cgroup/$hierarchy/$group/cgroup.procs"
done
mkdir "$folder/memory" "$folder/root"
mount -t tmpfs tmpfs "$folder/memory"
mkdir "$folder/memory/upper" "$folder/memory/work"
mount -t overlay overlay -o "lowerdir=/,upperdir=$folder/memory/upper,workdir=$folder/memory/work" "$folder/root"
rm -f "$folder/root/etc/machine-id"
: > "$folder/root/etc/machine-id"
mkdir -p /run/systemd/nspawn
mount -t tmpfs tmpfs /run/systemd/nspawn
exec env SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1 SYSTEMD_SECCOMP=0 SYSTEMD_NSPAWN_API_VFS_WRITABLE=yes \
  systemd-nspawn --quiet --boot --directory="$folder/root" --machine=emulated --register=no --keep-unit \
  --capability=all --private-network --resolv-conf=off --timezone=off --link-journal=no --console=read-only \
  "${@/#/--bind=}" systemd.unit=basic.target
