#!/bin/sh
# Installs what infrabed needs: Debian packages (named before they are installed), npm packages, and the build.
set -eu
cd "$(dirname "$0")/.."

packages=""
need() { # need PROGRAM PACKAGE
  command -v "$1" >/dev/null 2>&1 || packages="$packages $2"
}
need systemd-nspawn systemd-container
need mmdebstrap mmdebstrap
need bwrap bubblewrap
need socat socat
need ansible-playbook ansible
need rsync rsync
need ssh openssh-client
need sftp openssh-client
need ssh-keygen openssh-client
need ip iproute2
need python3 python3
need make make
need g++ g++
[ -x /usr/sbin/sshd ] || packages="$packages openssh-server"
command -v ansible-runner >/dev/null 2>&1 || /usr/bin/python3 -c 'import ansible_runner' 2>/dev/null || packages="$packages python3-ansible-runner"
packages=$(printf '%s\n' $packages | sort -u | tr '\n' ' ')

if [ -n "$(printf %s "$packages" | tr -d ' ')" ]; then
  as_root=""
  [ "$(id -u)" -eq 0 ] || as_root="sudo"
  echo "setup: installing with apt: $packages"
  $as_root apt-get update -qq
  DEBIAN_FRONTEND=noninteractive $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $packages
else
  echo "setup: every Debian package that is needed is there"
fi

if [ ! -d node_modules ] || [ package-lock.json -nt node_modules/.package-lock.json ]; then
  echo "setup: npm ci"
  npm ci
else
  echo "setup: npm packages are up to date"
fi

echo "setup: build"
npm run --silent build
