#!/bin/bash
# Residue: a right repair that keeps the stale file under another name and leaves the incident open.
set -euo pipefail
config="${INFRABED_SSH_CONFIG:-ssh_config}"

ssh -F "$config" node1 bash -s <<'NODE1'
set -euo pipefail
cd /etc/systemd/network/10-eth0.network.d
mv 50-uplink-defaults.conf 50-uplink-defaults.conf.bak
networkctl reload
networkctl reconfigure eth0
sleep 2
NODE1
