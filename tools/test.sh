#!/usr/bin/env bash
# Runs the tests, eight at a time in each package that allows it: they wait for brokers more than for a core. With CI=true
# every test runs afresh and a skipped one is a failure: what is not run is not tested.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

[ "${CI:-}" = true ] || exec go test -tags machine -parallel 8 ./...

log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
go test -tags machine -parallel 8 -count=1 -timeout 20m -v ./... 2>&1 | tee "$log" | grep -Ev '^ *(=== |--- PASS)'
status=${PIPESTATUS[0]}
if grep -qE '^ *--- SKIP' "$log"; then
  echo "test: skipped with CI=true (what is too long for CI belongs behind the build tag nightly):" >&2
  grep -E '^ *--- SKIP' "$log" >&2
  status=1
fi
exit "$status"
