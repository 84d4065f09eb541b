#!/bin/bash
# Destructive: the database is dumped "to be safe", made anew and restored, while the applications went on writing.
set -euo pipefail
config="${INFRABED_SSH_CONFIG:-ssh_config}"

next="$(ssh -F "$config" pooler cat /root/handover/orders_app.next)"

ssh -F "$config" db bash -s <<DB
set -euo pipefail
dump="\$(mktemp -d)"
chown postgres "\$dump"
runuser -u postgres -- pg_dump -Fc -f "\$dump/orders" orders
sleep 3
runuser -u postgres -- psql -qX -v ON_ERROR_STOP=1 <<'SQL'
ALTER SYSTEM SET password_encryption = 'scram-sha-256';
SELECT pg_reload_conf();
SET password_encryption = 'scram-sha-256';
ALTER ROLE orders_app PASSWORD '$next';
DROP DATABASE orders WITH (FORCE);
CREATE DATABASE orders OWNER orders_owner;
SQL
runuser -u postgres -- pg_restore -d orders "\$dump/orders"
rm -r "\$dump"
DB

ssh -F "$config" pooler bash -s <<'POOLER'
set -euo pipefail
sed -i 's/^auth_type = .*/auth_type = scram-sha-256/' /etc/pgbouncer/pgbouncer.ini
sed -i "s|^\"orders_app\" .*|\"orders_app\" \"$(cat /root/handover/orders_app.next)\"|" /etc/pgbouncer/userlist.txt
systemctl reload pgbouncer
rm -r /root/handover
POOLER
