#!/usr/bin/env bash
# Runs the tests that take too long for each commit, two parts at a time on two cores, since most parts wait for
# brokers, timers and emulators. All parts run, even after a failure. The output of a part is printed when the part has
# ended, and is kept in nightly/ with a table of results. `nightly.sh 10m` fuzzes each target for 10 minutes, a seventh
# of the targets each day. Exits with 1 if a part has failed.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

fuzz=$1
export logs=$PWD/nightly
rm -rf "$logs" && mkdir "$logs" || exit 1

# Packages whose tests have these build tags. `make test` runs the other packages.
tags=nightly,machine
files() { go list "$@" -f '{{.ImportPath}} {{.TestGoFiles}} {{.XTestGoFiles}}' ./... | sort; }
tagged=$(comm -13 <(files) <(files -tags $tags) | cut -d ' ' -f 1 | paste -sd ' ')
[ -n "$tagged" ] || exit 1

# Name and command of each part. The longest parts come first, so that both lanes end at about the same time.
parts="
race        env CGO_ENABLED=1 go test -race -count=1 -shuffle=on -timeout 2h ./...
fuzz        env GOMAXPROCS=1 tools/fuzz.sh $fuzz $(($(date +%s) / 86400 % 7))/7
arm         make test-arm
tags        go test -tags $tags -count=1 -timeout 3h $tagged
packages    go -C tools/package test -tags nightly -count=1 -timeout 2h ./...
chaos       make chaos
python      make python WITH=all
plans       make sim-soak
vm          make test-install-vm
site        make site
powercut    make test-powercut CUTS=200
"

part() { # part NAME COMMAND...
  local name=$1 began=$SECONDS result=passed
  shift
  "$@" </dev/null >"$logs/$name" 2>&1 || result=FAILED
  echo "== $name: $*"
  cat "$logs/$name"
  printf '%6d s  %-6s  %s\n' $((SECONDS - began)) "$result" "$name" | tee -a "$logs/table"
  [ "$result" = passed ]
}
export -f part

for group in race package release nightly vm fuse arm; do tools/deps.sh $group || exit 1; done # one at a time: apt-get locks
grep . <<<"$parts" | xargs -P 2 -I{} bash -c 'part {}'
result=$?
printf '%s\n' "== after ${SECONDS} s" "$(cat "$logs/table")"
exit $((result != 0))
