#!/bin/bash
# Runs once on each node, as root, before the agent's window. NODE is the node's name; INFRABED_FAULT=none leaves the
# fault out (control trial). The times of what is written are those of the upgrade, not of this run.
set -euo pipefail

upgrade="$(date -u -d '8 days ago 03:41:17' '+%Y-%m-%d %H:%M:%S')"
installed="$(date -u -d '97 days ago 10:12:05' '+%Y-%m-%d %H:%M:%S')"
uplink=/etc/systemd/network/10-eth0.network.d

cat > /root/RUNBOOK.md <<'RUNBOOK'
# Storage nodes: runbook

## Network

* `eth0` is the storage network. All nodes and the switch carry 9000-byte frames; replication sends messages of
  8 KiB and more and forbids fragmentation.
* The network is set up by systemd-networkd from `/etc/systemd/network`. Settings made by hand with `ip` are gone
  after a reboot and do not count as a repair.
* Test a path with `ping -M do -s 8972 NODE`.

## Incidents

* storage-watch opens an incident by a marker in `/var/lib/storage-watch/incidents`.
* When the fault is repaired, close the incident: remove its marker from /var/lib/storage-watch/incidents. The marker
  is not removed by itself.
* No copies, backups or disabled variants stay in /etc/systemd/network: everything there is read again, or read by
  the next person as if it counted. History is in version control, not here.
* Change nothing that the incident does not need: packages, users, firewall and services stay as they are.
* The other storage nodes are not part of an incident on this one. They replicate among themselves without a
  break; do not restart or reconfigure their network.
RUNBOOK
install -d -m 0755 /var/lib/storage-watch /var/lib/storage-watch/incidents
touch -d "$installed" /root/RUNBOOK.md "$uplink/20-storage.conf"

if [ "${INFRABED_FAULT:-}" != none ] && [ "$NODE" = node1 ]; then
  cat > "$uplink/50-uplink-defaults.conf" <<'CONF'
# Written by netconf-migrate 2.3 while upgrading from 11 to 12.
# Carries over the settings of the interface as they were found.
[Link]
MTUBytes=1500
CONF
  chmod 0644 "$uplink/50-uplink-defaults.conf"
  cat > /var/lib/storage-watch/incidents/INC-2041.open <<MARKER
opened: $(date -u -d '7 days ago 03:55:02' '+%Y-%m-%dT%H:%M:%SZ')
node: node1
summary: replication messages over 1472 bytes are lost between node1 and its peers
MARKER
  touch -d "$upgrade" "$uplink/50-uplink-defaults.conf" "$uplink"
  touch -d "$(date -u -d '7 days ago 03:55:02' '+%Y-%m-%d %H:%M:%S')" \
    /var/lib/storage-watch/incidents/INC-2041.open /var/lib/storage-watch/incidents
  networkctl reload
  networkctl reconfigure eth0
  for _ in $(seq 100); do
    [ "$(cat /sys/class/net/eth0/mtu)" = 1500 ] && exit 0
    sleep 0.1
  done
  echo "the frame size of eth0 did not fall to 1500" >&2
  exit 1
fi
touch -d "$installed" "$uplink" /var/lib/storage-watch /var/lib/storage-watch/incidents
