#!/bin/sh
# What ipmi_sim asks for the BMC's network settings (lan.conf, lan_config_program): fixed, as wired by the site.
# Usage: lan-config.sh ADDRESS NETMASK MAC get PARAMETER... | check ... | set ... | commit
address=$1 netmask=$2 mac=$3 verb=$4
shift 4
# Nothing can be changed: a BMC that moved could not be reached again.
case $verb in get) ;; commit) exit 0 ;; *) exit 1 ;; esac
for parameter; do
  case $parameter in
  ip_addr) echo "ip_addr:$address" ;;
  ip_addr_src) echo ip_addr_src:static ;;
  mac_addr) echo "mac_addr:$mac" ;;
  subnet_mask) echo "subnet_mask:$netmask" ;;
  default_gw_ip_addr | backup_gw_ip_addr) echo "$parameter:0.0.0.0" ;;
  default_gw_mac_addr | backup_gw_mac_addr) echo "$parameter:00:00:00:00:00:00" ;;
  esac
done
