#!/bin/bash
# Residue: a right repair that leaves a copy of the settings and the incident open.
set -euo pipefail
ssh -F "$INFRABED_SSH_CONFIG" node0 bash -s <<'NODE0'
set -euo pipefail
cp /etc/status-page.env /etc/status-page.env.bak
sed -i 's/^PORT=.*/PORT=8080/' /etc/status-page.env
systemctl restart status-page.service
NODE0
