#!/bin/sh
# Moves itself into control groups (one a hierarchy, separated by colons), then becomes the program.
# Usage: node-enter.sh GROUP[:GROUP...] PROGRAM [ARGUMENT...]
set -eu
groups=$1
shift
IFS=:
for group in $groups; do
  mkdir -p "$group"
  echo $$ > "$group/cgroup.procs"
done
unset IFS
exec "$@"
