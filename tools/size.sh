#!/usr/bin/env bash
# Fails if a released agentd or coordinator exceeds its size limit: agentd must fit into the flash memory of devices.
# Prints the sizes, and the share of each package in agentd on amd64.
set -euo pipefail
cd "$(dirname "$0")/.."

# Program, size limit in bytes, and processor.
targets='
agentd      17000000 amd64 GOAMD64=v1
agentd      17000000 arm64 GOARM64=v8.0
agentd      17000000 arm   GOARM=7
coordinator 21000000 amd64 GOAMD64=v1
coordinator 21000000 arm64 GOARM64=v8.0
coordinator 21000000 arm   GOARM=7
'

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export GOOS=linux CGO_ENABLED=0

linked() { go build $(cat tools/buildflags) -o "$2" "./cmd/$1" </dev/null && wc -c <"$2"; }

too_large=()
while read -r program limit arch variant; do
  [ -n "$program" ] || continue
  size=$(export GOARCH="$arch" "$variant" && linked "$program" "$dir/stripped")
  printf '%-11s %-12s %9d bytes of %d\n' "$program" "$arch ${variant#*=}" "$size" "$limit"
  [ "$size" -le "$limit" ] || too_large+=("$program on $arch")
done <<<"$targets"

# Symbols are named PACKAGE.NAME; NAME may be (*T).method or f[go.shape.…]. The package ends at the first dot after its
# last slash. Sizes are summed by the first path element of the standard library, and the first three of modules.
echo
echo "agentd on amd64, code and data by package (bytes):"
GOARCH=amd64 go build $(cat tools/buildflags) -ldflags= -o "$dir/full" ./cmd/agentd
go tool nm -size "$dir/full" | awk '
  $3 !~ /^[TtRrDd]$/ || $2 > 8e6 { next } # skip reserved memory, which is not in the file
  {
    name = $4
    sub(/^type:\.[a-z]*\./, "", name)
    sub(/[\[(].*/, "", name)
    head = ""
    if (match(name, /.*\//)) { head = substr(name, 1, RLENGTH); name = substr(name, RLENGTH + 1) }
    sub(/\..*/, "", name)
    n = split(head name, part, "/")
    if (part[1] == "vendor") key = "(standard library) vendor"
    else if (part[1] !~ /\./) key = n == 1 && head name ~ /^(type|go)?:/ ? "types and strings" : "(standard library) " part[1]
    else if (part[2] == "fedmesh") key = "fedmesh/" part[4] (n > 4 ? "/" part[5] : "")
    else key = part[1] "/" part[2] (n > 2 ? "/" part[3] : "")
    gsub(/%2e/, ".", key)
    sum[key] += $2
    all += $2
  }
  END {
    for (k in sum) printf "%9d  %s\n", sum[k], k
    printf "%9d  %s\n", size - all, "texts, and the tables of functions and lines that stack traces need"
  }' size="$(GOARCH=amd64 linked agentd "$dir/stripped")" | sort -rn | sed -n 1,40p # head would close the pipe before sort has finished

[ ${#too_large[@]} = 0 ] && exit 0
printf 'size: too large: %s: see what the last change links (go list -deps ./cmd/PROGRAM)\n' "${too_large[@]}" >&2
exit 1
