#!/usr/bin/env bash
# Runs the tests: two packages per core, and up to eight parallel tests per package, since the tests mostly wait for
# brokers, boots and certificates. The slowest packages start first. With CI=true results are not cached and a skipped
# test is a failure. CI runs `make vet` separately.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

args=(-tags machine -p $((2 * $(getconf _NPROCESSORS_ONLN))) -parallel 8)
packages=(./internal/e2e ./internal/testkit/machine ./lab/demo ./internal/conformance ./...)
[ "${CI:-}" = true ] || exec go test "${args[@]}" "${packages[@]}"

log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
go test "${args[@]}" -count=1 -vet=off -timeout 20m -v "${packages[@]}" 2>&1 | tee "$log" | grep -Ev '^ *(=== |--- PASS)'
status=${PIPESTATUS[0]}
if grep -qE '^ *--- SKIP' "$log"; then
  echo "test: skipped with CI=true (what is too long for CI belongs behind the build tag nightly):" >&2
  grep -E '^ *--- SKIP' "$log" >&2
  status=1
fi
exit "$status"
