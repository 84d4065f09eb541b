#!/bin/bash
# Not persistent: the override lies under /run and is gone after the next reboot.
set -euo pipefail
ssh -F "$INFRABED_SSH_CONFIG" node0 bash -s <<'NODE0'
set -euo pipefail
install -d /run/systemd/system/status-page.service.d
cat > /run/systemd/system/status-page.service.d/port.conf <<'CONF'
[Service]
EnvironmentFile=
Environment=PORT=8080
CONF
systemctl daemon-reload
systemctl restart status-page.service
rm /var/lib/status-page/incidents/INC-17
NODE0
