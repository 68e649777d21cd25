#!/usr/bin/env bash
# Builds every package and links stripped commands for each supported system. Prints the sizes of the commands.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

# GOOS, GOARCH, and further variables for the processor.
targets='
linux   amd64
linux   arm64
linux   arm     GOARM=7
linux   arm     GOARM=6
linux   riscv64
linux   mipsle  GOMIPS=softfloat
darwin  amd64
darwin  arm64
windows amd64
android arm64
'

failed=()
while read -r os arch variant; do
  [ -n "$os" ] || continue
  name=$os-$arch${variant:+-${variant#*=}}
  out=bin/cross/$name
  rm -rf "$out" && mkdir -p "$out" || exit 1
  if env CGO_ENABLED=0 GOOS="$os" GOARCH="$arch" ${variant:+"$variant"} \
      go build $(cat tools/buildflags) -o "$out/" ./... </dev/null; then
    (cd "$out" && for f in *; do [ -e "$f" ] || continue; printf '%-22s %-16s %5.1f MB\n' "$name" "$f" "$(wc -c <"$f" | awk '{ print $1 / 1e6 }')"; done)
  else
    failed+=("$name")
  fi
done <<<"$targets"
[ ${#failed[@]} = 0 ] && exit 0
echo "cross: failed for ${failed[*]}" >&2
exit 1
