#!/bin/sh
# Keeps one node powered on where the host has no systemd: boots it, and again as often as it asks for a reboot.
# Runs in the node's private mount namespace, detached from the controller; ends when the node is off.
# Usage: node-supervisor.sh FOLDER FENCE GROUP[:GROUP...] NODE-BOOT-ARGUMENT...
set -u
folder=$1 fence=$2 groups=$3
shift 3
here=$(dirname "$0")

# One supervisor a node, whoever asks: the lock is held for as long as this process lives.
exec 9> "$folder/supervisor.lock"
flock --nonblock 9 || exit 75

while :; do
  # It serves the cluster, whichever generation of the lease has it, and boots nothing once the cluster is given up.
  case $(cat "$fence/generation" 2> /dev/null) in
  live*) ;;
  *) exit 76 ;;
  esac
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
