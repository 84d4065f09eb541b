#!/bin/bash
# Not persistent: that PgBouncer asks by SCRAM is set in its admin console only; its settings still say md5.
set -euo pipefail
config="${INFRABED_SSH_CONFIG:-ssh_config}"

next="$(ssh -F "$config" pooler cat /root/handover/orders_app.next)"

ssh -F "$config" pooler bash -s <<'POOLER'
set -euo pipefail
cd /
sed -i "s|^\"orders_app\" .*|\"orders_app\" \"$(cat /root/handover/orders_app.next)\"|" /etc/pgbouncer/userlist.txt
systemctl reload pgbouncer
sleep 1
runuser -u postgres -- psql -qX -p 6432 -U pgbouncer -c "SET auth_type = 'scram-sha-256'" pgbouncer
rm -r /root/handover
POOLER

ssh -F "$config" db bash -s <<DB
set -euo pipefail
cd /
runuser -u postgres -- psql -qX -v ON_ERROR_STOP=1 <<'SQL'
ALTER SYSTEM SET password_encryption = 'scram-sha-256';
SELECT pg_reload_conf();
SET password_encryption = 'scram-sha-256';
ALTER ROLE orders_app PASSWORD '$next';
SQL
DB
