#!/bin/bash
# Surface status: the incident is closed, the fault stays.
set -euo pipefail
config="${INFRABED_SSH_CONFIG:-ssh_config}"

ssh -F "$config" node1 'rm /var/lib/storage-watch/incidents/INC-2041.open && ls -la /var/lib/storage-watch/incidents'
