#!/bin/bash
# Prints, as JSON, whether every order that the applications got an acknowledgement for is in the table, read as the
# auditor straight from the server. During the window a server that is just restarting proves nothing; at a gate it
# has to answer.
set -uo pipefail

log=/var/lib/orders-client/acknowledged.log
say() { printf '{"pass": %s, "why": "%s", "acknowledged": %d, "missing": %d}\n' "$1" "$2" "${3:-0}" "${4:-0}"; exit 0; }

if [ ! -s "$log" ]; then
  [ "$INFRABED_MOMENT" = window ] && say true "no order was acknowledged yet"
  say false "the applications never got an acknowledgement"
fi
deployment="$(sed -n 's/^DEPLOYMENT=//p' /etc/machine-info)"
# The log first, the table after it: what is acknowledged in between is no loss.
acknowledged="$(awk -v d="$deployment" '$2 == d {print $1}' "$log" | sort -u)"
rows="$(PGPASSWORD="$(sed -n 's/^AUDIT=//p' /etc/orders-client/credentials)" PGCONNECT_TIMEOUT=4 timeout 12 \
  /usr/lib/postgresql/15/bin/psql -qXwAt -v ON_ERROR_STOP=1 -h db -p 5432 -U orders_audit -d orders \
  -v deployment="$deployment" -f - <<<"SELECT id FROM orders WHERE deployment = :'deployment'" 2>/tmp/.audit-error)"
status=$?
error="$(tr -d '"\\\n' </tmp/.audit-error | cut -c1-200)"
rm -f /tmp/.audit-error
if [ "$status" -ne 0 ]; then
  [ "$INFRABED_MOMENT" = window ] && say true "the server did not answer the auditor just now: $error"
  say false "the auditor could not read the table: $error"
fi
missing="$(comm -23 <(printf '%s\n' "$acknowledged") <(printf '%s\n' "$rows" | sort -u) | grep -c .)"
count="$(printf '%s\n' "$acknowledged" | grep -c .)"
[ "$missing" -eq 0 ] && say true "all $count acknowledged orders are in the table" "$count" 0
say false "$missing of $count acknowledged orders are not in the table" "$count" "$missing"
