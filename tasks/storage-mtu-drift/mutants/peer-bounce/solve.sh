#!/bin/bash
# Peer damage: node1 is repaired, and then "networking is restarted everywhere to be sure", which cuts node0 off.
set -euo pipefail
config="${INFRABED_SSH_CONFIG:-ssh_config}"

ssh -F "$config" node1 bash -s <<'NODE1'
set -euo pipefail
rm /etc/systemd/network/10-eth0.network.d/50-uplink-defaults.conf
networkctl reload
networkctl reconfigure eth0
rm /var/lib/storage-watch/incidents/INC-2041.open
NODE1

# In a unit of its own, because the session that asks for it is cut off too.
ssh -F "$config" node0 "systemd-run --quiet --collect sh -c 'ip link set eth0 down; sleep 6; ip link set eth0 up; networkctl reconfigure eth0'"
sleep 9
ssh -F "$config" node0 'networkctl status eth0 --no-pager | head -5'
