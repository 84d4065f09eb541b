#!/bin/sh
# One boot of one node: becomes systemd-nspawn on the node's mounted file system. Status 133 means: boot me again.
# Usage: node-boot.sh FOLDER NETNS MACHINE HOSTNAME BASE [NSPAWN-OPTION...]
set -u
folder=$1 netns=$2 machine=$3 hostname=$4 base=$5
shift 5

if [ "${IB_IN_NETWORK:-}" != yes ]; then
  IB_IN_NETWORK=yes exec nsenter --net="$netns" /bin/sh "$0" "$folder" "$netns" "$machine" "$hostname" "$base" "$@"
fi

# Stands for the firmware: what the BMC was told about this boot comes before any boot from the disk.
bmc=$folder/bmc
if [ -d "$bmc" ]; then
  [ ! -e "$bmc/held" ] || rm -f "$bmc/held"
  # How often the node was started: the BMC's watchdog belongs to one start.
  printf . >> "$bmc/boots"
  device=none
  if [ -e "$bmc/boot-options" ]; then
    device=$(/usr/bin/python3 -I -S "$(dirname "$0")/../bmc/firmware.py" "$bmc")
  fi
  case $device in
  none | disk) without= ;;
  pxe) without='Network boot (PXE): this machine found no boot server.' ;;
  cdrom) without='Boot from CD/DVD: there is no medium in the drive.' ;;
  bios) without='Setup was entered, and waits for somebody at the console.' ;;
  *) without='The boot override could not be read.' ;;
  esac
  if [ -n "$without" ]; then
    printf '%s\n' "$device" > "$bmc/held"
    printf 'firmware: %s No operating system was started. The power is on; switch it off or reset it.\n' "$without"
    exec sleep infinity
  fi
fi

ip link delete "vb-$machine" 2> /dev/null
# nspawn makes the host's end of the cable with 1500 bytes at each boot; jumbo frames would be lost there.
(
  (
    tries=0
    until ip link set "vb-$machine" mtu 9216 2> /dev/null || [ "$tries" -ge 500 ]; do
      tries=$((tries + 1))
      sleep 0.02
    done
  ) < /dev/null > /dev/null 2>&1 &
)

# Whole seconds of the host's uptime: with them taken off, the node's own uptime starts at its boot.
up=$(cut -d. -f1 /proc/uptime)
printf '%s %s boot\n' "$(date +%s)" "$$" >> "$folder/events"
exec env --unset=IB_IN_NETWORK SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1 \
  unshare -T --boottime "-$up" --monotonic "-$up" \
  systemd-nspawn --quiet --boot --directory="$folder/merged" --machine="$machine" --hostname="$hostname" \
  --register=no --keep-unit --kill-signal=SIGRTMIN+3 --network-bridge=br0 \
  --private-users="$base:65536" --private-users-ownership=off \
  --resolv-conf=off --timezone=off --link-journal=no --console=read-only "$@" < /dev/null
