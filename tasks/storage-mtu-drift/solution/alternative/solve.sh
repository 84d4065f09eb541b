#!/bin/bash
# Another right way: the settings that the upgrade wrote stay the operator's to edit, so the value is corrected in
# place, networkd is restarted instead of reloaded, and the running link follows.
set -euo pipefail
config="${INFRABED_SSH_CONFIG:-ssh_config}"

ssh -F "$config" node1 bash -s <<'NODE1'
set -euo pipefail
stale=/etc/systemd/network/10-eth0.network.d/50-uplink-defaults.conf
sed -i 's/^MTUBytes=1500$/MTUBytes=9000/' "$stale"
systemctl restart systemd-networkd
sleep 2
/usr/lib/systemd/systemd-networkd-wait-online --interface=eth0 --timeout=20
ping -n -q -c 2 -W 1 -M do -s 8972 node2
find /var/lib/storage-watch/incidents -name 'INC-*' -delete
NODE1
