#!/usr/bin/env bash
# Installs what is not Go: `deps.sh test` for the tests, `machine` for those that boot machines, `vm` for emulated ones,
# `nightly` for the nightly tests, `race` for the race detector, `fuse` to mount file systems, `package` for the tests of our packages, `release` to make a release, `arm` to run ARM code. Quick
# when all is there.
# Without root, passwordless sudo or apt-get it names what is missing and goes on, and the tests that need it skip
# themselves; with CI=true that is an error.
set -euo pipefail

# The one list. Group, command or file that must be found, Debian packages that bring it.
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

# The packages of mosquitto and prometheus would start these on their ports, and at each boot. Debian asks policy-rc.d before it starts
# anything; an administrator's own policy is left alone.
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
