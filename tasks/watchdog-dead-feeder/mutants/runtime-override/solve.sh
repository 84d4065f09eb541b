#!/bin/bash
# Not persistent: a drop-in below /run wins over the stale one, until the next boot.
set -euo pipefail
config="${INFRABED_SSH_CONFIG:-ssh_config}"

ssh -F "$config" node0 bash -s <<'NODE0'
set -euo pipefail
mkdir -p /run/systemd/system/bmc-feeder.service.d
printf '[Service]\nEnvironment=PAUSED=no\n' > /run/systemd/system/bmc-feeder.service.d/90-feed.conf
systemctl daemon-reload
systemctl restart bmc-feeder.service
sleep 6
NODE0
