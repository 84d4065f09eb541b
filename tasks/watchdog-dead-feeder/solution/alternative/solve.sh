#!/bin/bash
# Another right way: systemd itself puts the unit back to what its package says, and the feeder is stopped and started.
set -euo pipefail
config="${INFRABED_SSH_CONFIG:-ssh_config}"

ssh -F "$config" node0 'systemctl stop bmc-feeder && systemctl revert bmc-feeder.service && systemctl start bmc-feeder'
sleep 6
ssh -F "$config" node0 systemctl --no-pager status bmc-feeder.service
