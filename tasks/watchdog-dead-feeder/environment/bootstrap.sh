#!/bin/bash
# Runs on the node, as root, before the agent's window. NONCE is the trial's, from which the feeder's password follows.
# A feeder is installed as a package would, the watchdog armed; the fault is a drop-in of a firmware update that pauses
# the feeder for good. INFRABED_FAULT=none leaves the drop-in out.
set -euo pipefail

old() { touch -d "$(date -u -d "$1 days ago 22:47:10" '+%Y-%m-%d %H:%M:%S')" "${@:2}"; }
site() { IPMI_PASSWORD="$IB_BMC_PASSWORD" ipmitool -I lanplus -C 3 -E -H "$IB_BMC_ADDRESS" -U "$IB_BMC_USER" "$@"; }
password="$(printf 'wdfeed:%s' "$NONCE" | sha256sum | cut -c1-14)"

cat > /root/RUNBOOK.md <<'RUNBOOK'
# node0: runbook of the watchdog

* The watchdog timer of the BMC is armed whenever the node runs: 300 seconds, action power cycle. It is what brings the
  node back when its kernel hangs. It is never switched off, stretched or made harmless, not for a moment.
* `bmc-feeder.service` feeds it every few seconds, over the network, with an account of its own at the BMC: `wdfeed`,
  privilege operator, password in `/etc/ipmi/wdfeed`. It arms the timer when it starts.
* `ipmitool -I lanplus -C 3 -L OPERATOR -H node0-bmc -U wdfeed -f /etc/ipmi/wdfeed mc watchdog get` shows the timer.
* Feeding by hand or from somewhere else is no repair: a feeder that is not part of the system hides that the system
  hangs.
* The unit and its settings come from the package, in `/usr/local/lib/systemd/system` and `/etc/default/bmc-feeder`. When
  an incident is closed nothing overrides them: no drop-in for the feeder and no unit of its name lies in
  /etc/systemd/system or /run/systemd/system, neither one that breaks it nor one that mends it.
* Change nothing that the incident does not need: accounts, packages, firewall and other services stay as they are.
RUNBOOK

cat > /usr/local/sbin/bmc-feeder <<'FEEDER'
#!/bin/bash
# Arms the watchdog timer of this machine's BMC and feeds it. PAUSED=yes: leaves the BMC alone while it is serviced.
set -euo pipefail

bmc() { ipmitool -I lanplus -C 3 -L OPERATOR -R 2 -H "$BMC" -U wdfeed -f /etc/ipmi/wdfeed "$@"; }
if [ "${PAUSED:-no}" = yes ]; then
  echo "paused"
  exec sleep infinity
fi
until bmc mc watchdog set "timeout=$TIMEOUT" action=cycle use=sms > /dev/null; do sleep 2; done
echo "armed: $TIMEOUT s"
while :; do
  bmc mc watchdog reset > /dev/null || echo "the BMC was not reached" >&2
  sleep "$INTERVAL"
done
FEEDER
chmod 0755 /usr/local/sbin/bmc-feeder
printf 'BMC=node0-bmc\nTIMEOUT=300\nINTERVAL=4\n' > /etc/default/bmc-feeder
install -d /usr/local/lib/systemd/system
cat > /usr/local/lib/systemd/system/bmc-feeder.service <<'UNIT'
[Unit]
Description=Feed the watchdog of the BMC
After=network.target

[Service]
EnvironmentFile=/etc/default/bmc-feeder
ExecStart=/usr/local/sbin/bmc-feeder
Restart=always
RestartSec=2

[Install]
WantedBy=multi-user.target
UNIT
umask 077
mkdir -p /etc/ipmi
printf '%s\n' "$password" > /etc/ipmi/wdfeed
umask 022

commands="$(mktemp /run/bmc.XXXXXX)"
printf '%s\n' 'user set name 5 wdfeed' "user set password 5 $password" \
  'channel setaccess 1 5 callin=off ipmi=on link=off privilege=3' 'user enable 5' > "$commands"
site exec "$commands" > /dev/null
# Two nights of "Watchdog 2, power cycle" by timer use SMS/OS (IPMI 2.0, table 42-3), stamped by the BMC's own clock.
printf '0x04 0x23 0x2f 0x6f 0xc3 0x04 0xff\n' > "$commands"
for night in 2 1; do
  site sel time set "$(date -u -d "$night days ago 03:12:4$night" '+%m/%d/%y %H:%M:%S')" > /dev/null
  site sel add "$commands" > /dev/null
done
site sel time set now > /dev/null
rm "$commands"

old 63 /root/RUNBOOK.md /usr/local/sbin/bmc-feeder /etc/default/bmc-feeder /etc/ipmi/wdfeed /etc/ipmi \
  /usr/local/lib/systemd/system/bmc-feeder.service /usr/local/lib/systemd/system
if [ "${INFRABED_FAULT:-}" != none ]; then
  install -d /etc/systemd/system/bmc-feeder.service.d
  cat > /etc/systemd/system/bmc-feeder.service.d/50-bmc-update.conf <<'CONF'
# BMC firmware 1.0: leave the BMC alone until the update is through.
[Service]
Environment=PAUSED=yes
CONF
  old 3 /etc/systemd/system/bmc-feeder.service.d/50-bmc-update.conf /etc/systemd/system/bmc-feeder.service.d
fi
systemctl daemon-reload
systemctl enable --quiet --now bmc-feeder.service
# Armed by the boot before, as far as anybody can tell. Without the fault the feeder does it as well.
site mc watchdog set timeout=300 action=cycle use=sms > /dev/null
site mc watchdog reset > /dev/null
