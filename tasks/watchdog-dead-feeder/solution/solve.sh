#!/bin/bash
# Reference: the drop-in that the firmware update left goes, and the feeder starts by its package's unit.
set -euo pipefail
config="${INFRABED_SSH_CONFIG:-ssh_config}"

ssh -F "$config" node0 bash -s <<'NODE0'
set -euo pipefail
systemctl cat bmc-feeder.service
rm -r /etc/systemd/system/bmc-feeder.service.d
systemctl daemon-reload
systemctl restart bmc-feeder.service
sleep 6
ipmitool -I lanplus -C 3 -L OPERATOR -H node0-bmc -U wdfeed -f /etc/ipmi/wdfeed mc watchdog get
NODE0
