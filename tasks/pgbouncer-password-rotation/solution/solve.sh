#!/bin/bash
# Reference: PgBouncer's list gets the new password first (open server connections go on serving), then the role; the
# ALTER SYSTEM value that hides the settings file goes, the hand-over file too.
set -euo pipefail
config="${INFRABED_SSH_CONFIG:-ssh_config}"

next="$(ssh -F "$config" pooler cat /root/handover/orders_app.next)"

ssh -F "$config" pooler bash -s <<'POOLER'
set -euo pipefail
umask 077
printf '"orders_app" "%s"\n' "$(cat /root/handover/orders_app.next)" > /etc/pgbouncer/.userlist.new
chown postgres:postgres /etc/pgbouncer/.userlist.new
chmod 0640 /etc/pgbouncer/.userlist.new
mv /etc/pgbouncer/.userlist.new /etc/pgbouncer/userlist.txt
sed -i 's/^auth_type = .*/auth_type = scram-sha-256/' /etc/pgbouncer/pgbouncer.ini
runuser -u postgres -- psql -qX -p 6432 -U pgbouncer -c RELOAD pgbouncer
POOLER

ssh -F "$config" db bash -s <<DB
set -euo pipefail
cd /
sed -i 's/^password_encryption = .*/password_encryption = scram-sha-256/' /etc/postgresql/15/main/postgresql.conf
runuser -u postgres -- psql -qXAt -v ON_ERROR_STOP=1 <<'SQL'
ALTER SYSTEM RESET password_encryption;
SELECT pg_reload_conf();
SELECT pg_sleep(0.5);
SHOW password_encryption;
SET log_min_error_statement = panic;
ALTER ROLE orders_app PASSWORD '$next';
SELECT left(rolpassword, 14) FROM pg_authid WHERE rolname = 'orders_app';
SQL
DB

ssh -F "$config" pooler bash -s <<'POOLER'
set -euo pipefail
runuser -u postgres -- psql -qX -p 6432 -U pgbouncer -c RECONNECT pgbouncer
sleep 2
PGPASSWORD="$(cat /root/handover/orders_app.next)" psql -qXAt -h 127.0.0.1 -p 6432 -U orders_app -d orders -c 'SELECT count(*) FROM orders'
rm -r /root/handover
POOLER
