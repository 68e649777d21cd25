#!/usr/bin/env bash
# gofmt -l lists what is not formatted and exits with 0 all the same; here a list is a failure.
set -euo pipefail
cd "$(dirname "$0")/.."

unformatted=$(gofmt -l .)
[ -z "$unformatted" ] && exit 0
echo "gofmt: not formatted; run gofmt -w on:" >&2
echo "$unformatted" >&2
exit 1
