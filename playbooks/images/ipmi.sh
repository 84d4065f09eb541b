#!/bin/sh
# Runs on the builder with the layer's merged root folder as $1, before its packages are installed as well as after
# ($2 = before | after).
set -eu
root=$1
case $2 in
before) ;;
after)
  # Without this registry of manufacturers ipmitool complains at each start; an empty one is enough.
  mkdir -p "$root/usr/share/misc"
  [ -e "$root/usr/share/misc/enterprise-numbers.txt" ] || : > "$root/usr/share/misc/enterprise-numbers.txt"
  ;;
esac
