#!/usr/bin/env bash
# Installs dependencies other than Go by group: `deps.sh test` for the tests, `machine` for tests that boot machines,
# `vm` for emulated machines, `nightly` for the nightly tests, `race` for the race detector, `fuse` to mount file
# systems, `browser` for the tests of the web console, `package` for the tests of our packages, `release` to make a
# release, `arm` to run ARM code. It does nothing if all dependencies are installed. Without root, passwordless sudo or
# apt-get it prints the missing dependencies and continues. Tests that need them skip themselves. With CI=true a
# missing dependency is an error.
set -euo pipefail

# The list of dependencies: group, required command or file, Debian packages that contain it.
python=/usr/lib/python3/dist-packages
needs="
test mosquitto            mosquitto
test promtool             prometheus
test python3              python3
test $python/paho         python3-paho-mqtt
test $python/cryptography python3-cryptography
test $python/numpy        python3-numpy
test $python/pytest       python3-pytest
test openssl              openssl
test gcc                  gcc libc6-dev
test systemd-analyze      systemd
machine systemd-nspawn    systemd-container
machine mmdebstrap        mmdebstrap
machine nsenter           util-linux
machine apt-ftparchive    apt-utils
machine gpg               gpg
machine nft               nftables
machine ip                iproute2
vm   mmdebstrap           mmdebstrap
vm   cpio                 cpio
vm   qemu-system-x86_64   qemu-system-x86
vm   qemu-system-aarch64  qemu-system-arm
vm   qemu-aarch64-static  qemu-user-static
vm   update-binfmts       binfmt-support
vm   arch-test            arch-test
nightly /usr/share/datasets/fashion-mnist dataset-fashion-mnist
nightly $python/sklearn   python3-sklearn
nightly rabbitmq-server   rabbitmq-server
nightly podman            podman runc
nightly docker-compose    docker-compose
nightly /usr/lib/cni/dnsname golang-github-containernetworking-plugin-dnsname
browser chromium          chromium
race gcc                  gcc libc6-dev
fuse fusermount3          fuse3
package lintian           lintian
package rpm               rpm
package gpg               gpg
release apt-ftparchive    apt-utils
release gpg               gpg
arm  qemu-arm-static      qemu-user-static
"

group=$1
PATH=$PATH:/usr/sbin:/sbin

found() {
  case $1 in
    /*) [ -e "$1" ] ;;
    *) command -v "$1" >/dev/null ;;
  esac
}

missing=() packages=()
while read -r of what debian; do
  [ "$of" = "$group" ] || continue
  ! found "$what" || continue
  missing+=("$what")
  read -ra names <<<"$debian"
  packages+=("${names[@]}")
done <<<"$needs"
[ ${#missing[@]} -gt 0 ] || exit 0

give_up() {
  echo "deps: not installed: ${missing[*]} ($1; Debian packages: ${packages[*]})" >&2
  if [ "${CI:-}" = true ]; then exit 1; fi
  echo "deps: going on; the tests that need them are skipped" >&2
  exit 0
}

command -v apt-get >/dev/null || give_up "no apt-get here"
as_root=()
if [ "$(id -u)" != 0 ]; then
  sudo -n true 2>/dev/null || give_up "neither root nor passwordless sudo"
  as_root=(sudo -n)
fi

# The packages of mosquitto and prometheus would start their daemons now and at each boot. policy-rc.d prevents this. An
# existing policy of the administrator is not changed.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
  printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee $policy >/dev/null
  "${as_root[@]}" chmod 755 $policy
  trap '"${as_root[@]}" rm -f $policy' EXIT
fi

echo "deps: installing ${packages[*]}"
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=120)
"${apt[@]}" update || give_up "apt-get update failed"
"${apt[@]}" install -y --no-install-recommends "${packages[@]}" || give_up "apt-get install failed"
for daemon in mosquitto prometheus; do
  [[ " ${packages[*]} " = *" $daemon "* ]] || continue
  "${as_root[@]}" update-rc.d $daemon disable
  ! command -v systemctl >/dev/null || "${as_root[@]}" systemctl --quiet disable $daemon.service
done
