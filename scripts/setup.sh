#!/bin/sh
# Installs what infrabed needs: Debian packages (named before they are installed), npm packages, and the build.
# With the argument "vm" also what virtual machines need.
set -eu
cd "$(dirname "$0")/.."

# Node.js is not installed here: Debian's own is older than what is needed, and which one is yours to choose.
if ! command -v node >/dev/null 2>&1 || ! command -v npm >/dev/null 2>&1; then
  echo "setup: Node.js 20.19 or newer, with npm, has to be installed first" >&2
  exit 1
fi
node -e 'const [a, b] = process.versions.node.split(".").map(Number); process.exit(a > 20 || (a === 20 && b >= 19) ? 0 : 1)' || {
  echo "setup: Node.js $(node --version) is too old: 20.19 or newer is needed" >&2
  exit 1
}

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
need sysctl procps
need ipmi_sim openipmi
need ipmitool ipmitool
[ -f /usr/include/OpenIPMI/lanserv.h ] || packages="$packages libopenipmi-dev"
[ -f /usr/share/keyrings/debian-archive-keyring.gpg ] || packages="$packages debian-archive-keyring"
# A test tries the migrations on it.
ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || packages="$packages postgresql"
[ -x /usr/sbin/sshd ] || packages="$packages openssh-server"
command -v ansible-runner >/dev/null 2>&1 || /usr/bin/python3 -c 'import ansible_runner' 2>/dev/null || packages="$packages python3-ansible-runner"
if [ "${1:-}" = vm ]; then
  need virsh libvirt-clients
  need qemu-system-x86_64 qemu-system-x86
  need qemu-img qemu-utils
  need mke2fs e2fsprogs
  [ -x /usr/sbin/libvirtd ] || packages="$packages libvirt-daemon-system"
fi
packages=$(printf '%s\n' $packages | sort -u | tr '\n' ' ')

if [ -n "$(printf %s "$packages" | tr -d ' ')" ]; then
  as_root=""
  if [ "$(id -u)" -ne 0 ]; then
    as_root="sudo"
    command -v sudo >/dev/null 2>&1 || {
      echo "setup: missing packages: $packages" >&2
      echo "setup: run it as root, or install them (or sudo) first" >&2
      exit 1
    }
  fi
  echo "setup: installing with apt: $packages"
  $as_root apt-get update -qq
  case " $packages " in *" postgresql "*)
    if [ ! -f /etc/postgresql-common/createcluster.conf ]; then
      # Only its programs are wanted: without a cluster of its own it starts no server.
      $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends postgresql-common
      $as_root sh -c 'echo "create_main_cluster = false" >>/etc/postgresql-common/createcluster.conf'
    fi
    ;;
  esac
  $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $packages
else
  echo "setup: every Debian package that is needed is there"
fi

if [ ! -d node_modules ] || [ package-lock.json -nt node_modules/.package-lock.json ]; then
  echo "setup: npm ci (compiles SQLite once; some minutes on a small machine)"
  npm ci --no-audit --no-fund --loglevel=error
else
  echo "setup: npm packages are up to date"
fi

echo "setup: build"
npm run --silent build
