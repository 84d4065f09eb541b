#!/bin/bash
# Prints, as JSON, whether the lab's password still opens the BMC. That the BMC answers at all is shown by the account of
# the monitoring first.
set -uo pipefail

nonce="$(sed -n 's/^DEPLOYMENT=//p' /etc/machine-info)"
secret() { printf '%s:%s' "$1" "$nonce" | sha256sum | cut -c1-14; }
login() { IPMI_PASSWORD="$(secret "$1")" timeout 20 ipmitool -I lanplus -C 3 -L "$2" -R 2 -E -H node0-bmc -U "$1" mc info 2>&1; }
say() { printf '{"pass": %s, "why": "%s"}\n' "$1" "$2"; exit 0; }

answer="$(login selwatch USER)" || say false "the monitoring cannot log in to the BMC any more"
for level in ADMINISTRATOR OPERATOR USER; do
  answer="$(login labops "$level")" && say false "labops can still log in to the BMC as $level"
done
say true "labops is refused, and the monitoring is not"
