#!/bin/bash
# Residue: a right rotation, with the statement kept in a file on the server, a copy of the list and the hand-over file.
set -euo pipefail
config="${INFRABED_SSH_CONFIG:-ssh_config}"

next="$(ssh -F "$config" pooler cat /root/handover/orders_app.next)"

ssh -F "$config" pooler bash -s <<'POOLER'
set -euo pipefail
sed -i 's/^auth_type = .*/auth_type = scram-sha-256/' /etc/pgbouncer/pgbouncer.ini
sed -i "s|^\"orders_app\" .*|\"orders_app\" \"$(cat /root/handover/orders_app.next)\"|" /etc/pgbouncer/userlist.txt
cp -p /etc/pgbouncer/userlist.txt /etc/pgbouncer/userlist.txt.rotated
systemctl reload pgbouncer
POOLER

ssh -F "$config" db bash -s <<DB
set -euo pipefail
cat > /root/rotate-orders_app.sql <<'SQL'
ALTER SYSTEM SET password_encryption = 'scram-sha-256';
SELECT pg_reload_conf();
SET password_encryption = 'scram-sha-256';
ALTER ROLE orders_app PASSWORD '$next';
SQL
runuser -u postgres -- psql -qX -v ON_ERROR_STOP=1 < /root/rotate-orders_app.sql
DB
