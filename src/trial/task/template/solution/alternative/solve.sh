#!/bin/bash
# Another right way: a drop-in of the unit sets the port, whatever the settings file says.
set -euo pipefail
ssh -F "$INFRABED_SSH_CONFIG" node0 bash -s <<'NODE0'
set -euo pipefail
install -d /etc/systemd/system/status-page.service.d
cat > /etc/systemd/system/status-page.service.d/port.conf <<'CONF'
[Service]
EnvironmentFile=
Environment=PORT=8080
CONF
systemctl daemon-reload
systemctl restart status-page.service
rm /var/lib/status-page/incidents/INC-17
NODE0
