#!/bin/sh
# Keeps bmcd running where the host has no systemd, at most once a second; ends when its configuration is removed.
# Usage: bmc-supervisor.sh BMCD CONFIG
while [ -e "$2" ]; do
  /usr/bin/python3 -I -S "$1" "$2"
  sleep 1
done
