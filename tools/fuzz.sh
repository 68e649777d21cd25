#!/usr/bin/env bash
# Runs every fuzz target of the module, one after the other: `fuzz.sh 3s`. `fuzz.sh 10m 2/7` runs every seventh target,
# beginning with the third. A failing input is written to the package's testdata/fuzz/; commit it with the fix.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

time=$1
share=${2:-0/1}
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT

# `go test -list` prints a package's targets, then its line "ok <package> <seconds>".
go test -list '^Fuzz' ./... >"$log" || { cat "$log"; exit 1; }
targets=$(awk -v from="${share%/*}" -v of="${share#*/}" '/^Fuzz/ { names[++n] = $1 }
  /^ok/ { for (i = 1; i <= n; i++) if (all++ % of == from) print $2, names[i]; n = 0 }' "$log")
if [ -z "$targets" ]; then
  echo "fuzz: no fuzz target found" >&2
  exit 1
fi

# With a duration, Go 1.26 sometimes fails with only "context deadline exceeded" (golang/go#75804, fixed in Go 1.27).
# Only this failure is retried, once.
fuzz() { # fuzz PACKAGE TARGET
  go test -run '^$' -fuzz "^$2\$" -fuzztime "$time" -fuzzminimizetime 1s "$1" 2>&1 | tee "$log"
  return "${PIPESTATUS[0]}"
}
ran_out() { grep -q '^    context deadline exceeded$' "$log" && ! grep -qE 'Failing input|panic:|_test\.go:' "$log"; }

failed=0
while read -r package target; do
  echo "== $target in $package"
  fuzz "$package" "$target" </dev/null && continue
  if ran_out; then
    echo "== $target once more: only its time ran out"
    fuzz "$package" "$target" </dev/null && continue
  fi
  failed=1
done <<<"$targets"
exit $failed
