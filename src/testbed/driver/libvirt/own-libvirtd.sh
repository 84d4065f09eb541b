#!/bin/sh
# Becomes a libvirtd of infrabed's own, for a machine whose init starts none: in a mount namespace where the folders that
# libvirtd has by its build are those of the state folder, so that nothing of the machine's own libvirt is touched.
# Usage: own-libvirtd.sh FOLDER, in a mount namespace of its own. It ends by itself when it has no machines and no clients.
set -eu
folder=$1

for pair in etc:/etc/libvirt run:/run/libvirt lib:/var/lib/libvirt log:/var/log/libvirt cache:/var/cache/libvirt; do
  own=$folder/${pair%%:*}
  mkdir -p "$own" "${pair#*:}"
  mount --bind "$own" "${pair#*:}"
done
# A machine that runs on has its state in `run`; what a killed daemon left of its own there is in the way.
rm -f "$folder/run/libvirtd.pid"
exec libvirtd --timeout 60 --pid-file "$folder/run/libvirtd.pid"
