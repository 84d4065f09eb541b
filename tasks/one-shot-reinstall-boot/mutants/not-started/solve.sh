#!/bin/bash
# Surface status: the BMC is as it should be, and nobody looks whether the machine is up.
set -euo pipefail
config="${INFRABED_SSH_CONFIG:-ssh_config}"

ssh -F "$config" node1 bash -s <<'NODE1'
set -euo pipefail
bmc() { ipmitool -I lanplus -C 3 -H node0-bmc -U deploy -f /etc/ipmi/node0-bmc "$@"; }
bmc chassis bootdev none
id="$(bmc user list 1 | awk '$2 == "installer" {print $1}')"
bmc user disable "$id"
bmc channel setaccess 1 "$id" callin=off ipmi=off link=off privilege=15
bmc user set name "$id" ""
NODE1
