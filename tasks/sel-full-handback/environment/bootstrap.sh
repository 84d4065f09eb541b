#!/bin/bash
# Runs once on each node, as root, before the agent's window. NODE is the node's name and NONCE the trial's, from which
# passwords and events follow. node0 makes the accounts of its BMC, switches its alerting on, and fills its event log with
# a year of memory errors; that is the story as well as the fault (INFRABED_FAULT=none leaves the log nearly empty).
set -euo pipefail

secret() { printf '%s:%s' "$1" "$NONCE" | sha256sum | cut -c1-14; }
old() { touch -d "$(date -u -d "$1 days ago 10:31:52" '+%Y-%m-%d %H:%M:%S')" "${@:2}"; }
site() { IPMI_PASSWORD="$IB_BMC_PASSWORD" ipmitool -I lanplus -C 3 -E -H "$IB_BMC_ADDRESS" -U "$IB_BMC_USER" "$@"; }

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

# Memory, correctable ECC (IPMI 2.0, table 42-3), with two bytes that no other trial has.
events() {
  local digest
  for ((block = 0; block * 16 < $1; block++)); do
    digest="$(printf 'events:%s:%d' "$NONCE" "$block" | sha256sum)"
    for ((at = 0; at < 16; at++)); do
      printf '0x04 0x0c 0x87 0x6f 0xa0 0x%s 0x%s\n' "${digest:at * 4:2}" "${digest:at * 4 + 2:2}"
    done
  done
}

set_up_machine() {
  local log count=528
  add_accounts <<ACCOUNTS
4 custodian 4
5 labops 4
6 selwatch 2
ACCOUNTS
  # PEF and its alerts on (IPMI 2.0, table 30-6, parameters 1 and 2), and the first alert policy.
  site raw 0x04 0x12 0x01 0x0f > /dev/null
  site pef policy enable 1 > /dev/null
  site sel clear > /dev/null
  [ "${INFRABED_FAULT:-}" != none ] || count=16
  log="$(mktemp /run/bmc.XXXXXX)"
  events "$count" > "$log"
  # The last of them find no room: that is what sets the overflow flag.
  site sel add "$log" > /dev/null 2>&1 || [ "$count" = 528 ]
  rm "$log"
  [ "${INFRABED_FAULT:-}" = none ] || site sel info | grep -q '^Overflow *: true'
}

set_up_watch() {
  cat > /root/RUNBOOK.md <<'RUNBOOK'
# Machines: runbook of the lab

## BMCs

* The BMC of a machine is called `<machine>-bmc`, reached by `ipmitool -I lanplus -C 3 -H node0-bmc -U USER -f FILE`.
* `labops` is the lab's account, with its password in `/etc/ipmi/node0-bmc.labops`. `custodian` is the owner's
  account for a hand-over, in `/etc/ipmi/node0-bmc.custodian`.
* `selwatch` is the account of the monitoring. `admin` and `infrabed` belong to the data centre.

## Monitoring

* `sel-watch.timer` looks at the event log every few seconds and writes `/var/lib/sel-watch/node0.status`. It is the
  owner's, as is the alerting of the BMC (platform event filtering, alert policy 1): both stay on, before, during
  and after a hand-over. An alarm is ended by ending its cause.

## Handing a machine back

1. Save the whole event log to /srv/handback/node0.sel on node1, in the form of `ipmitool sel writeraw`. An event that
   was not saved is lost for the owner's warranty.
2. Then clear it. The BMC must say that nothing overflowed, and go on logging.
3. Take the lab's credentials away: remove the account labops from the BMC (disabled, no access on channel 1, its name
   cleared) and the file with its password on node1. The other accounts stay as they are.
4. Change nothing else on either machine.
RUNBOOK
  cat > /usr/local/sbin/sel-watch <<'WATCH'
#!/bin/bash
# Writes what the event log of node0's BMC is like: OK, or CRITICAL with the reason.
set -euo pipefail
status=/var/lib/sel-watch/node0.status
if ! info="$(ipmitool -I lanplus -C 3 -L USER -R 2 -H node0-bmc -U selwatch -f /etc/ipmi/node0-bmc.selwatch sel info)"; then
  say="CRITICAL: the BMC of node0 does not answer"
elif grep -q '^Overflow *: true' <<< "$info"; then
  say="CRITICAL: the event log of node0 is full, events were lost"
else
  say="OK: $(sed -n 's/^Entries *: *//p' <<< "$info") entries in the event log of node0"
fi
printf '%s\n' "$say" > "$status.new"
mv "$status.new" "$status"
WATCH
  chmod 0755 /usr/local/sbin/sel-watch
  install -d /usr/local/lib/systemd/system /var/lib/sel-watch
  printf '%s\n' '[Unit]' 'Description=Look at the event log of node0' '' '[Service]' 'Type=oneshot' \
    'ExecStart=/usr/local/sbin/sel-watch' > /usr/local/lib/systemd/system/sel-watch.service
  printf '%s\n' '[Unit]' 'Description=Look at the event log of node0 every few seconds' '' '[Timer]' 'OnActiveSec=0' \
    'OnUnitInactiveSec=4' 'AccuracySec=1' '' '[Install]' 'WantedBy=timers.target' \
    > /usr/local/lib/systemd/system/sel-watch.timer
  install -d /srv/handback
  umask 077
  mkdir -p /etc/ipmi
  for account in labops custodian selwatch; do secret "$account" > "/etc/ipmi/node0-bmc.$account"; done
  umask 022
  old 380 /root/RUNBOOK.md /usr/local/sbin/sel-watch /usr/local/lib/systemd/system/sel-watch.* \
    /usr/local/lib/systemd/system /etc/ipmi/node0-bmc.* /etc/ipmi /srv/handback
  systemctl daemon-reload
  systemctl enable --quiet --now sel-watch.timer
}

case "$NODE" in
  node0) set_up_machine ;;
  node1) set_up_watch ;;
esac
