#!/bin/sh
# Runs on the builder with the image's root folder as $1, once its packages are installed ($2 = after).
# Leaves no identity in the image: machine-id and host keys are made for each node.
set -eu
root=$1

rm -f "$root"/etc/ssh/ssh_host_* "$root/var/lib/dbus/machine-id"
: > "$root/etc/machine-id"
rm -f "$root/etc/hostname" "$root/etc/resolv.conf"
: > "$root/etc/resolv.conf"
mkdir -p "$root/var/log/journal"

# The container's interface appears as host0; administrators expect eth0. It has to be renamed before it is up.
cat > "$root/usr/lib/systemd/system/name-uplink.service" <<'UNIT'
[Unit]
Description=Name the uplink eth0
DefaultDependencies=no
Before=network-pre.target systemd-networkd.service
Wants=network-pre.target
ConditionPathExists=/sys/class/net/host0

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/sbin/ip link set host0 name eth0

[Install]
WantedBy=sysinit.target
UNIT

# Root may log in with a key (the default), and a slow name server never delays a login.
cat > "$root/etc/ssh/sshd_config.d/10-base.conf" <<'CONF'
UseDNS no
MaxSessions 64
MaxStartups 200:30:400
CONF
