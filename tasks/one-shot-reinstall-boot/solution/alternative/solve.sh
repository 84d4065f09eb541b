#!/bin/bash
# Another right way: the machine is started from its disk by an override for this boot only, which that boot uses up; the
# boot flags are then written as invalid in raw form, whatever is left in them, and the account goes by one file.
set -euo pipefail
config="${INFRABED_SSH_CONFIG:-ssh_config}"

ssh -F "$config" node1 bash -s <<'NODE1'
set -euo pipefail
bmc() { ipmitool -I lanplus -C 3 -H node0-bmc -U deploy -f /etc/ipmi/node0-bmc "$@"; }
bmc chassis power off
for _ in $(seq 30); do
  if bmc chassis power status | grep -q 'is off'; then break; fi
  sleep 1
done
bmc chassis bootdev disk
bmc chassis power on
for _ in $(seq 90); do
  if nc -z -w 1 node0 22; then up=yes; break; fi
  sleep 1
done
[ "${up:-}" = yes ]
# Set System Boot Options, parameter 5: not valid, no device.
bmc raw 0x00 0x08 0x05 0x00 0x00 0x00 0x00 0x00
id="$(bmc user list 1 | awk '$2 == "installer" {print $1}')"
commands="$(mktemp)"
printf 'channel setaccess 1 %s callin=off ipmi=off link=off privilege=15\nuser disable %s\n' "$id" "$id" > "$commands"
bmc exec "$commands"
rm "$commands"
bmc user set name "$id" ""
NODE1
