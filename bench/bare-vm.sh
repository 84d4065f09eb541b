#!/bin/sh
# The bare mechanism for one virtual machine: virsh and ip, for a domain whose description and disk are there.
# Usage: bare-vm.sh up|down URI DOMAIN XML NETNS-PATH TAP MTU
set -eu
verb=$1 uri=$2 domain=$3 xml=$4 netns=$5 tap=$6 mtu=$7
virsh() { command virsh --quiet --connect "$uri" "$@"; }
case $verb in
up)
  virsh define "$xml"
  virsh start "$domain" --paused
  ip link set "$tap" netns "$netns"
  nsenter --net="$netns" ip link set "$tap" mtu "$mtu" master br0 up
  virsh resume "$domain"
  ;;
down)
  virsh destroy "$domain"
  ;;
esac
