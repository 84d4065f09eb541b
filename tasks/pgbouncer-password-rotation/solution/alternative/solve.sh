#!/bin/bash
# Another right way: the role first, and PgBouncer gets the SCRAM verifier that the server made instead of the
# password, so that it stands in clear nowhere at all. The default is set by ALTER SYSTEM itself.
set -euo pipefail
config="${INFRABED_SSH_CONFIG:-ssh_config}"

next="$(ssh -F "$config" pooler cat /root/handover/orders_app.next)"

ssh -F "$config" db runuser -u postgres -- psql -qX -v ON_ERROR_STOP=1 <<SQL
ALTER SYSTEM SET password_encryption = 'scram-sha-256';
SELECT pg_reload_conf();
SET password_encryption = 'scram-sha-256';
SET log_min_error_statement = panic;
ALTER ROLE orders_app PASSWORD '$next';
SQL

verifier="$(ssh -F "$config" db runuser -u postgres -- psql -qXAt -c "\"SELECT rolpassword FROM pg_authid WHERE rolname = 'orders_app'\"")"

ssh -F "$config" pooler bash -s <<POOLER
set -euo pipefail
sed -i 's|^"orders_app" .*|"orders_app" "$verifier"|' /etc/pgbouncer/userlist.txt
systemctl reload pgbouncer
sleep 1
PGPASSWORD="\$(cat /root/handover/orders_app.next)" psql -qXAt -h 127.0.0.1 -p 6432 -U orders_app -d orders -c 'SELECT count(*) FROM orders'
rm /root/handover/orders_app.next
POOLER
