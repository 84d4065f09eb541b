#!/bin/bash
# Runs once on each node, as root, before the agent's window. NODE is the node's name and NONCE the trial's, from which
# the passwords follow. node0 sets its own BMC up and, last of all, the wrong override; node1 waits for that and switches
# node0's power off and on, so that it stays in its firmware. INFRABED_FAULT=none leaves override and power alone.
set -euo pipefail

secret() { printf '%s:%s' "$1" "$NONCE" | sha256sum | cut -c1-14; }
old() { touch -d "$(date -u -d "$1 days ago 09:14:33" '+%Y-%m-%d %H:%M:%S')" "${@:2}"; }

# Everything about accounts goes by a file of ipmitool commands, so that no password is on a command line.
add_accounts() {
  local commands
  commands="$(mktemp /run/bmc.XXXXXX)"
  while read -r id name level; do
    printf 'user set name %s %s\nuser set password %s %s\n' "$id" "$name" "$id" "$(secret "$name")"
    printf 'channel setaccess 1 %s callin=off ipmi=on link=off privilege=%s\nuser enable %s\n' "$id" "$level" "$id"
  done > "$commands"
  site exec "$commands" > /dev/null
  rm "$commands"
}

site() { IPMI_PASSWORD="$IB_BMC_PASSWORD" ipmitool -I lanplus -C 3 -E -H "$IB_BMC_ADDRESS" -U "$IB_BMC_USER" "$@"; }
deploy() { ipmitool -I lanplus -C 3 -R 2 -H node0-bmc -U deploy -f /etc/ipmi/node0-bmc "$@"; }

set_up_machine() {
  add_accounts <<ACCOUNTS
4 deploy 4
7 installer 4
ACCOUNTS
  [ "${INFRABED_FAULT:-}" = none ] || site chassis bootdev pxe options=persistent > /dev/null
}

set_up_admin() {
  cat > /root/RUNBOOK.md <<'RUNBOOK'
# Machines: runbook of the admin node

## BMCs

* The BMC of a machine is called `<machine>-bmc`. The admin node logs in as `deploy`, with the password in
  `/etc/ipmi/<machine>-bmc`:
  `ipmitool -I lanplus -C 3 -H node0-bmc -U deploy -f /etc/ipmi/node0-bmc chassis status`
* `admin` and `infrabed` are accounts of the data centre. They and `deploy` stay as they are, and so do the LAN
  settings of the BMC.

## Booting

* The firmware of every machine tries its disk first and the network last. That is all a machine in service needs: its
  BMC holds no boot override, neither for the next boot nor for good, not even one for the disk. An override that waits
  for the next boot meets whoever switches the power next.
* What a machine will do at its next boot: `chassis bootparam get 5`. The BMC forgets an override that is not used for
  60 seconds, but not all firmware agrees: do not wait for it.

## Reinstallations

* The installer sets a PXE override, boots the machine, and logs in to the BMC with an account of its own, `installer`.
* When a reinstallation is done, remove the account `installer` from the BMC: disabled, without access on channel 1, and
  its name cleared. An account that is only disabled is enabled again by the next script.
* A machine is done when it answers on port 22.
RUNBOOK
  umask 077
  mkdir -p /etc/ipmi
  secret deploy > /etc/ipmi/node0-bmc
  umask 022
  old 41 /root/RUNBOOK.md /etc/ipmi/node0-bmc /etc/ipmi
  [ "${INFRABED_FAULT:-}" != none ] || return 0
  for _ in $(seq 60); do
    if flags="$(deploy raw 0x00 0x09 0x05 0x00 0x00 2> /dev/null)" && [[ "$flags" == " 01 05 "[cCeE]"0 04"* ]]; then
      # The script of node0 ends in these seconds.
      sleep 5
      deploy chassis power cycle > /dev/null
      wait_until_silent
      return 0
    fi
    sleep 1
  done
  echo "the BMC of node0 did not get its override: ${flags:-no answer}" >&2
  return 1
}

wait_until_silent() {
  local silent=0
  for _ in $(seq 60); do
    if timeout 2 nc -z -w 1 node0 22 2> /dev/null; then silent=0; else silent=$((silent + 1)); fi
    [ "$silent" -lt 8 ] || return 0
    sleep 1
  done
  echo "node0 still answers after its power was cycled with a PXE override" >&2
  return 1
}

case "$NODE" in
  node0) set_up_machine ;;
  node1) set_up_admin ;;
esac
