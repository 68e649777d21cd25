#!/usr/bin/env bash
# Fails if a file is not formatted. gofmt -l only lists such files and exits with 0.
set -euo pipefail
cd "$(dirname "$0")/.."

unformatted=$(gofmt -l .)
[ -z "$unformatted" ] && exit 0
echo "gofmt: not formatted; run gofmt -w on:" >&2
echo "$unformatted" >&2
exit 1
