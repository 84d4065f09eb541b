#!/bin/bash
# Another right way: the log is saved and emptied by the lab's account from node0, with the raw reservation and erase
# commands; the owner's account, used on node1, removes that account last.
set -euo pipefail
config="${INFRABED_SSH_CONFIG:-ssh_config}"

ssh -F "$config" node1 cat /etc/ipmi/node0-bmc.labops | ssh -F "$config" node0 'umask 077; cat > /run/lab'
ssh -F "$config" node0 bash -s <<'NODE0'
set -euo pipefail
bmc() { ipmitool -I lanplus -C 3 -H node0-bmc -U labops -f /run/lab "$@"; }
bmc sel writeraw /run/node0.sel > /dev/null
# Reserve SEL, then Clear SEL with "CLR" and AAh, initiate erase (IPMI 2.0, sections 31.4 and 31.9).
read -r low high < <(bmc raw 0x0a 0x42)
bmc raw 0x0a 0x47 "0x$low" "0x$high" 0x43 0x4c 0x52 0xaa
sleep 2
rm /run/lab
NODE0
ssh -F "$config" node0 cat /run/node0.sel | ssh -F "$config" node1 'cat > /srv/handback/node0.sel'
ssh -F "$config" node0 rm /run/node0.sel

ssh -F "$config" node1 bash -s <<'NODE1'
set -euo pipefail
bmc() { ipmitool -I lanplus -C 3 -H node0-bmc -U custodian -f /etc/ipmi/node0-bmc.custodian "$@"; }
rm /etc/ipmi/node0-bmc.labops
id="$(bmc user list 1 | awk '$2 == "labops" {print $1}')"
bmc channel setaccess 1 "$id" callin=off ipmi=off link=off privilege=15
bmc user set name "$id" ""
bmc user disable "$id"
# The monitoring sees it by itself.
for _ in $(seq 30); do
  if grep -q "^OK" /var/lib/sel-watch/node0.status; then break; fi
  sleep 1
done
cat /var/lib/sel-watch/node0.status
NODE1
