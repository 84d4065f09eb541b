#!/bin/bash
# Not persistent: PgBouncer is pointed to a list under /run by SET in its admin console; its settings still name the
# old one.
set -euo pipefail
config="${INFRABED_SSH_CONFIG:-ssh_config}"

next="$(ssh -F "$config" pooler cat /root/handover/orders_app.next)"

ssh -F "$config" pooler bash -s <<'POOLER'
set -euo pipefail
umask 077
printf '"orders_app" "%s"\n' "$(cat /root/handover/orders_app.next)" > /run/postgresql/userlist.txt
chown postgres:postgres /run/postgresql/userlist.txt
runuser -u postgres -- psql -qX -p 6432 -U pgbouncer -c "SET auth_file = '/run/postgresql/userlist.txt'" pgbouncer
sleep 4
POOLER

ssh -F "$config" db runuser -u postgres -- psql -qX -v ON_ERROR_STOP=1 <<SQL
ALTER SYSTEM RESET password_encryption;
SELECT pg_reload_conf();
SET password_encryption = 'scram-sha-256';
ALTER ROLE orders_app PASSWORD '$next';
SQL

ssh -F "$config" pooler rm -r /root/handover
