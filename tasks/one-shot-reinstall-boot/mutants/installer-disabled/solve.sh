#!/bin/bash
# Residue: the installer's account is disabled, but left.
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
bmc user disable "$(bmc user list 1 | awk '$2 == "installer" {print $1}')"
NODE1
