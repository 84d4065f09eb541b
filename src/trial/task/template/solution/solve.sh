#!/bin/bash
# Reference: the port is put right where the runbook says that it is set, and the incident is closed.
set -euo pipefail
ssh -F "$INFRABED_SSH_CONFIG" node0 bash -s <<'NODE0'
set -euo pipefail
sed -i 's/^PORT=.*/PORT=8080/' /etc/status-page.env
systemctl restart status-page.service
curl -fsS --retry 10 --retry-connrefused --retry-delay 1 http://localhost:8080/ > /dev/null
rm /var/lib/status-page/incidents/INC-17
NODE0
