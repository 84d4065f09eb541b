#!/bin/bash
# Builds one layer on top of others: mounts them as an overlay and runs one step in it.
# Runs in a mount and a process namespace of its own, so nothing of it outlives it.
# Usage: image-layer.sh LOWERS UPPER WORK MOUNT packages HOOK PACKAGE...
#        image-layer.sh LOWERS UPPER WORK MOUNT script FOLDER NAME
#        image-layer.sh LOWERS UPPER WORK MOUNT units enable|disable|mask UNIT...
set -euo pipefail
lowers=$1 upper=$2 work=$3 root=$4 step=$5
shift 5

mount -t overlay overlay -o "lowerdir=$lowers,upperdir=$upper,workdir=$work,metacopy=off,redirect_dir=off" "$root"
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for device in null zero full random urandom tty; do
  : > "$root/dev/$device"
  mount --bind "/dev/$device" "$root/dev/$device"
done
ln -s /proc/self/fd "$root/dev/fd"
mkdir "$root/dev/shm" "$root/dev/pts"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
# The builder's name service, without leaving it in the image.
for file in resolv.conf hosts; do
  if [ -e "/etc/$file" ] && [ -e "$root/etc/$file" ]; then mount --bind "$(readlink -f "/etc/$file")" "$root/etc/$file"; fi
done
export DEBIAN_FRONTEND=noninteractive LC_ALL=C HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin

# While packages are installed no service of theirs may start on the builder.
printf '#!/bin/sh\nexit 101\n' > "$root/usr/sbin/policy-rc.d"
chmod 755 "$root/usr/sbin/policy-rc.d"
finish() {
  rm -f "$root/usr/sbin/policy-rc.d"
  rm -rf "$root"/var/lib/apt/lists/* "$root"/var/cache/apt/*.bin "$root"/var/cache/apt/archives/*.deb
}

case $step in
packages)
  hook=$1
  shift
  if [ -n "$hook" ]; then "$hook" "$root" before; fi
  if [ $# -gt 0 ]; then
    chroot "$root" apt-get update
    chroot "$root" apt-get install -y --no-install-recommends -o Dpkg::Options::=--force-confold "$@"
  fi
  if [ -n "$hook" ]; then "$hook" "$root" after; fi
  ;;
script)
  mkdir "$root/run/layer"
  mount --bind -o ro "$1" "$root/run/layer"
  mount -o remount,bind,ro "$root/run/layer"
  chroot "$root" /bin/bash -c 'cd /run/layer && exec /bin/bash "./$1"' setup "$2"
  ;;
units)
  verb=$1
  shift
  chroot "$root" systemctl "$verb" "$@"
  ;;
esac
finish
