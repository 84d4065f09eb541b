#!/bin/bash
# Surface status: the incident is closed, the page still answers elsewhere.
set -euo pipefail
ssh -F "$INFRABED_SSH_CONFIG" node0 rm /var/lib/status-page/incidents/INC-17
