#!/bin/bash
# Reference: the override goes, the machine starts by the firmware's own order, and the installer's account is removed.
set -euo pipefail
config="${INFRABED_SSH_CONFIG:-ssh_config}"

ssh -F "$config" node1 bash -s <<'NODE1'
set -euo pipefail
bmc() { ipmitool -I lanplus -C 3 -H node0-bmc -U deploy -f /etc/ipmi/node0-bmc "$@"; }
bmc chassis bootparam get 5
bmc chassis bootdev none
bmc chassis power reset
for _ in $(seq 90); do
  if nc -z -w 1 node0 22; then up=yes; break; fi
  sleep 1
done
[ "${up:-}" = yes ]
# Nothing may wait for the next boot.
bmc chassis bootparam get 5
id="$(bmc user list 1 | awk '$2 == "installer" {print $1}')"
bmc user disable "$id"
bmc channel setaccess 1 "$id" callin=off ipmi=off link=off privilege=15
bmc user set name "$id" ""
bmc user list 1 | head -10
NODE1
