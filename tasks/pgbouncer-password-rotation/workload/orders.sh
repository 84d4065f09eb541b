#!/bin/bash
# The applications: one order after the other through the pooler, each in a connection of its own. An order counts as
# acknowledged only when psql says so; one whose answer was lost is sent again under the same id. Runs on the client
# node from before the fault to the end, and goes on where it stopped when it is started again.
set -uo pipefail

credentials=/etc/orders-client/credentials
log=/var/lib/orders-client/acknowledged.log
psql=/usr/lib/postgresql/15/bin/psql

until [ -r "$credentials" ]; do sleep 0.2; done
deployment="$(sed -n 's/^DEPLOYMENT=//p' /etc/machine-info)"
password() { sed -n "s/^$1=//p" "$credentials"; }
declare -A passwords=([CURRENT]="$(password CURRENT)" [NEXT]="$(password NEXT)")
preferred=CURRENT
id="$(tail -n 1 "$log" 2>/dev/null | cut -d' ' -f1)"
id=$((${id:-0} + 1))

place() {
  PGPASSWORD="${passwords[$1]}" PGCONNECT_TIMEOUT=3 timeout 6 "$psql" -qXw -v ON_ERROR_STOP=1 \
    -h pooler -p 6432 -U orders_app -d orders \
    -c "INSERT INTO orders (id, deployment) VALUES ($id, '$deployment') ON CONFLICT (id) DO NOTHING" \
    </dev/null >/dev/null 2>>/var/lib/orders-client/refused.log
}

while :; do
  other=$([ "$preferred" = CURRENT ] && echo NEXT || echo CURRENT)
  if place "$preferred" || { place "$other" && preferred="$other"; }; then
    printf '%s %s %s %s\n' "$id" "$deployment" "$(date +%s.%N)" "$preferred" >> "$log"
    id=$((id + 1))
  fi
  sleep 0.25
done
