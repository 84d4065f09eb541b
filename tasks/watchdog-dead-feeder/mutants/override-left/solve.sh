#!/bin/bash
# Hidden configuration: one more drop-in turns the pause off again; both stay.
set -euo pipefail
config="${INFRABED_SSH_CONFIG:-ssh_config}"

ssh -F "$config" node0 bash -s <<'NODE0'
set -euo pipefail
printf '[Service]\nEnvironment=PAUSED=no\n' > /etc/systemd/system/bmc-feeder.service.d/override.conf
systemctl daemon-reload
systemctl restart bmc-feeder.service
sleep 6
NODE0
