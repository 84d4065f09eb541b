#!/bin/sh
# Runs on the builder with the layer's merged root folder as $1, before its packages are installed as well as after
# ($2 = before | after). No cluster is made at installation, so that no data directory is shared by all nodes.
set -eu
root=$1
case $2 in
before)
  mkdir -p "$root/etc/postgresql-common"
  printf 'create_main_cluster = false\n' > "$root/etc/postgresql-common/createcluster.conf"
  ;;
after) ;;
esac
