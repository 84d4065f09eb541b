#!/bin/bash
# Hidden configuration: the default is set in postgresql.conf, where the ALTER SYSTEM value goes on hiding it; the one
# rotation is right because its session asked for SCRAM.
set -euo pipefail
config="${INFRABED_SSH_CONFIG:-ssh_config}"

next="$(ssh -F "$config" pooler cat /root/handover/orders_app.next)"

ssh -F "$config" pooler bash -s <<'POOLER'
set -euo pipefail
sed -i 's/^auth_type = .*/auth_type = scram-sha-256/' /etc/pgbouncer/pgbouncer.ini
sed -i "s|^\"orders_app\" .*|\"orders_app\" \"$(cat /root/handover/orders_app.next)\"|" /etc/pgbouncer/userlist.txt
systemctl reload pgbouncer
POOLER

ssh -F "$config" db bash -s <<DB
set -euo pipefail
sed -i "s/^#\?password_encryption.*/password_encryption = scram-sha-256/" /etc/postgresql/15/main/postgresql.conf
systemctl reload postgresql@15-main
runuser -u postgres -- psql -qX -v ON_ERROR_STOP=1 <<'SQL'
SET password_encryption = 'scram-sha-256';
ALTER ROLE orders_app PASSWORD '$next';
SQL
DB

ssh -F "$config" pooler rm -r /root/handover
