#!/usr/bin/env bash
# What is too long for each commit. Every part runs, also after one has failed; the last lines say how long each took.
# `nightly.sh 10m` fuzzes each target for 10 minutes, a seventh of the targets each day. Exits with 1 when any part failed.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

fuzz=$1
table=()
failed=0

part() { # part COMMAND...
  local began=$SECONDS result=passed
  echo "== $* (at ${SECONDS} s)"
  "$@" </dev/null || { result=FAILED; failed=1; }
  table+=("$(printf '%6d s  %-6s  %s' $((SECONDS - began)) "$result" "$*")")
}

tools/deps.sh race && tools/deps.sh package && tools/deps.sh nightly || exit 1
part env CGO_ENABLED=1 go test -race -count=1 -shuffle=on -timeout 2h ./...
part env CGO_ENABLED=1 go test -race -short -count=2 -shuffle=on -timeout 2h ./...
part go test -tags nightly,machine -count=1 -timeout 4h ./...
part make test-install-vm
part make sim-soak
part tools/fuzz.sh "$fuzz" "$(($(date +%s) / 86400 % 7))/7"
part make chaos
part make test-powercut CUTS=200
part go -C tools/package test -tags nightly -count=1 -timeout 1h ./...
part make python WITH=all
part make test-arm

printf '%s\n' "== after ${SECONDS} s" "${table[@]}"
exit $failed
