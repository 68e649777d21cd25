#!/bin/sh
# Usage: compose.sh up|down. Runs compose.yml with a new testbed folder at each "up". AGENTS is the number of agents.
set -eu
cd "$(dirname "$0")/../.."
BIN=$PWD/bin BED=$PWD/state/compose UID_GID=$(id -u):$(id -g)
export BIN BED UID_GID
compose="docker compose"
docker compose version >/dev/null 2>&1 || compose=docker-compose # Debian's
compose="$compose -p fedmesh-testbed -f packaging/testbed/compose.yml"
case ${1:-} in
  up)
    $compose down --remove-orphans
    rm -rf "$BED"
    mkdir -p state
    "$BIN/fedlab" up files --dir "$BED" --agents "${AGENTS:-12}"
    $compose up --detach
    ;;
  down) $compose down ;;
  *) echo "usage: $0 up|down" >&2; exit 2 ;;
esac
