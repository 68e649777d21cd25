# Prepares podman for a test script, which sources this file in namespaces of its own. $DIR is the test's folder, in which podman
# keeps its images and containers, and $DIST has our images.
set -eu
cd "$DIR"
for d in /etc/cni /var/lib/cni /run; do
  mkdir -p $d
  mount -t tmpfs none $d
done
mkdir /etc/cni/net.d
ip link set lo up
# The namespace has no DNS server, and lookups must fail at once. Containers ask only the server of the first network.
touch resolv.conf
mount --bind resolv.conf /etc/resolv.conf
printf '[containers]\ndns_servers = ["10.89.0.1"]\ndefault_ulimits = ["nofile=%s:%s", "nproc=%s:%s"]\n[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\n' \
  "$(ulimit -n)" "$(ulimit -n)" "$(ulimit -u)" "$(ulimit -u)" | sed 's/unlimited/-1/g' >containers.conf
printf '[storage]\ndriver = "overlay"\ngraphroot = "%s/images"\nrunroot = "/run/images"\n' "$DIR" >storage.conf
export CONTAINERS_CONF=$DIR/containers.conf CONTAINERS_STORAGE_CONF=$DIR/storage.conf

tell() { echo "TEST $*"; }
fail() {
  tell "failed: $*"
  exit 1
}
# await WHAT COMMAND... waits until the command succeeds. After five minutes it prints the logs and ends the script.
await() {
  local last=$((SECONDS + 300)) what=$1
  shift
  until "$@" >/dev/null; do
    if [ $SECONDS -gt $last ]; then
      podman ps --all
      for c in $(podman ps --all --format '{{.Names}}'); do echo "== $c"; podman logs --tail 20 "$c" 2>&1; done
      tail ./*.log
      fail "$what"
    fi
    sleep 0.5
  done
}
# load PROGRAM: loads the image of a program, and prints its version.
load() {
  podman load --quiet --input "$DIST"/"$1"-*-oci.tar >load.log
  podman images --format '{{.Tag}}' "ghcr.io/fedmesh/$1"
}
# Starts the API of podman for docker-compose.
start_api() {
  podman system service --time=0 "unix://$DIR/socket" >podman.log 2>&1 &
  export DOCKER_HOST=unix://$DIR/socket
  await "podman does not answer" test -S "$DIR/socket"
}
