#!/bin/bash
# Residue: all is right, but "to be sure" an override for the disk waits for whoever switches the power next.
set -euo pipefail
config="${INFRABED_SSH_CONFIG:-ssh_config}"

ssh -F "$config" node1 bash -s <<'NODE1'
set -euo pipefail
bmc() { ipmitool -I lanplus -C 3 -H node0-bmc -U deploy -f /etc/ipmi/node0-bmc "$@"; }
bmc chassis bootdev none
bmc chassis power reset
for _ in $(seq 90); do
  if nc -z -w 1 node0 22; then up=yes; break; fi
  sleep 1
done
[ "${up:-}" = yes ]
bmc chassis bootdev disk
# With the time-out of 60 seconds switched off, as many tools do (parameter 3, bit 3), so that it really waits.
bmc raw 0x00 0x08 0x03 0x1f
bmc chassis bootparam get 5
id="$(bmc user list 1 | awk '$2 == "installer" {print $1}')"
bmc user disable "$id"
bmc channel setaccess 1 "$id" callin=off ipmi=off link=off privilege=15
bmc user set name "$id" ""
NODE1
