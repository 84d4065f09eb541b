#!/bin/sh
# Keeps one node powered on where the host has no systemd: boots it, and again as often as it asks for a reboot.
# Runs in the node's private mount namespace, detached from the controller; ends when the node is off.
# Usage: node-supervisor.sh FOLDER GENERATION GROUP[:GROUP...] NODE-BOOT-ARGUMENT...
set -u
folder=$1 generation=$2 groups=$3
shift 3
here=$(dirname "$0")

# One supervisor a node, whoever asks: the lock is held for as long as this process lives.
exec 9> "$folder/supervisor.lock"
flock --nonblock 9 || exit 75

while :; do
  # A lease that was given to someone else fences this supervisor off.
  [ "$(cat "$folder/../../generation" 2> /dev/null)" = "$generation" ] || exit 76
  # Control groups that the last boot left empty would be taken for a node that still runs.
  IFS=:
  for group in $groups; do
    find "$group" -mindepth 1 -depth -type d -exec rmdir {} \; 2> /dev/null
  done
  unset IFS
  perl "$here/node-wait.pl" "$folder/events" "$$" /bin/sh "$here/node-boot.sh" "$folder" "$@" 9>&-
  status=$?
  [ "$status" = 133 ] || exit "$status"
done
