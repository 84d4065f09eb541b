#!/bin/bash
# Not persistent: the frame size is set on the running link only, and the incident closed.
set -euo pipefail
config="${INFRABED_SSH_CONFIG:-ssh_config}"

ssh -F "$config" node1 'ip link set dev eth0 mtu 9000 && ping -q -c 1 -W 1 -M do -s 8972 node0 && rm /var/lib/storage-watch/incidents/INC-2041.open'
