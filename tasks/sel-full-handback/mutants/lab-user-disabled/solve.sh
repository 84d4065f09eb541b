#!/bin/bash
# Residue: the lab's account is disabled, not removed, and the file with its password forgotten.
set -euo pipefail
config="${INFRABED_SSH_CONFIG:-ssh_config}"

ssh -F "$config" node1 bash -s <<'NODE1'
set -euo pipefail
bmc() { ipmitool -I lanplus -C 3 -H node0-bmc -U custodian -f /etc/ipmi/node0-bmc.custodian "$@"; }
bmc sel writeraw /srv/handback/node0.sel > /dev/null
bmc sel clear
sleep 2
bmc user disable "$(bmc user list 1 | awk '$2 == "labops" {print $1}')"
# The monitoring sees it by itself.
for _ in $(seq 30); do
  if grep -q "^OK" /var/lib/sel-watch/node0.status; then break; fi
  sleep 1
done
cat /var/lib/sel-watch/node0.status
NODE1
