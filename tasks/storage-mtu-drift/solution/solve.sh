#!/bin/bash
# Reference: the stale drop-in goes, networkd reads its settings again, the incident is closed.
set -euo pipefail
config="${INFRABED_SSH_CONFIG:-ssh_config}"

ssh -F "$config" node1 bash -s <<'NODE1'
set -euo pipefail
grep -rn MTUBytes /etc/systemd/network
rm /etc/systemd/network/10-eth0.network.d/50-uplink-defaults.conf
networkctl reload
networkctl reconfigure eth0
# The address is gone for a moment while networkd sets the link up anew.
sleep 2
/usr/lib/systemd/systemd-networkd-wait-online --interface=eth0 --timeout=20
ping -n -q -c 1 -W 1 -M do -s 8972 node0
ping -n -q -c 1 -W 1 -M do -s 8972 node2
rm /var/lib/storage-watch/incidents/INC-2041.open
NODE1
