#!/bin/bash
# The yardstick: COUNT container nodes by a plain systemd-nspawn loop, with overlay, keys and machine-id made for each.
# No records, no read-back, no user namespaces. Leaves the nodes running; the second form ends them.
# Usage: bare-nodes.sh up FOLDER NETNS COUNT AUTHORIZED-KEYS LOWER
#        bare-nodes.sh down FOLDER NETNS
set -euo pipefail
verb=$1 folder=$2 netns=$3

node() {
  local i=$1 keys=$2 lower=$3 n=$folder/n$1
  mkdir -p "$n"/{upper,work,merged}
  local u=$n/upper
  mkdir -p "$u/etc/ssh" "$u/root/.ssh" "$u/etc/systemd/network"
  chmod 700 "$u/root" "$u/root/.ssh"
  cp "$keys" "$u/root/.ssh/authorized_keys"
  chmod 600 "$u/root/.ssh/authorized_keys"
  ssh-keygen -q -t ed25519 -N '' -f "$u/etc/ssh/ssh_host_ed25519_key"
  echo "n$i" > "$u/etc/hostname"
  tr -d - < /proc/sys/kernel/random/uuid > "$u/etc/machine-id"
  printf '[Match]\nName=eth0\n[Network]\nAddress=10.77.0.%d/24\nLinkLocalAddressing=no\nIPv6AcceptRA=no\n' \
    $((11 + i)) > "$u/etc/systemd/network/10-eth0.network"
  for hierarchy in systemd unified .; do
    [ -e "/sys/fs/cgroup/$hierarchy/cgroup.procs" ] || continue
    mkdir -p "/sys/fs/cgroup/$hierarchy/bare-$netns/n$i"
    echo $BASHPID > "/sys/fs/cgroup/$hierarchy/bare-$netns/n$i/cgroup.procs"
  done
  export n lower netns i
  exec unshare --mount --propagation slave bash -c '
    mount -t overlay overlay -o "lowerdir=$lower,upperdir=$n/upper,workdir=$n/work" "$n/merged"
    mkdir -p /run/systemd/nspawn; mount -t tmpfs tmpfs /run/systemd/nspawn
    up=$(cut -d. -f1 /proc/uptime)
    exec env SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1 nsenter --net="/run/netns/$netns" \
      unshare -T --boottime "-$up" --monotonic "-$up" \
      systemd-nspawn -q -b -D "$n/merged" --machine="n$i" --register=no --keep-unit --kill-signal=SIGRTMIN+3 \
      --network-bridge=br0 --resolv-conf=off --timezone=off --link-journal=no --console=pipe'
}

case $verb in
up)
  count=$4 keys=$5 lower=$6
  ip netns add "$netns"
  ip -n "$netns" link set lo up
  ip -n "$netns" link add br0 type bridge stp_state 0 forward_delay 0
  ip -n "$netns" addr add 10.77.0.1/24 dev br0
  ip -n "$netns" link set br0 up
  for i in $(seq 0 $((count - 1))); do
    (node "$i" "$keys" "$lower") < /dev/null > "$folder/n$i.log" 2>&1 &
  done
  ;;
down)
  for hierarchy in unified .; do
    group=/sys/fs/cgroup/$hierarchy/bare-$netns
    if [ -e "$group/cgroup.kill" ]; then echo 1 > "$group/cgroup.kill"; break; fi
  done
  for _ in $(seq 200); do
    grep -q 'populated 1' "$group/cgroup.events" || break
    sleep 0.02
  done
  for hierarchy in systemd unified .; do
    find "/sys/fs/cgroup/$hierarchy/bare-$netns" -depth -type d -exec rmdir {} \; 2> /dev/null || true
  done
  ip netns delete "$netns"
  ;;
esac
