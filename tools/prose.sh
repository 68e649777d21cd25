#!/usr/bin/env bash
# Checks our sentences with Vale and the rules in tools/prose/styles: Markdown pages and comments in Go files. `prose.sh FILE...`
# checks only these files.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ $# -gt 0 ]; then files=("$@"); else
  mapfile -t files < <(git ls-files --cached --others --exclude-standard --deduplicate -- '*.go' '*.md' ':!*/testdata/*')
fi
existing=()
for file in "${files[@]}"; do
  [ ! -e "$file" ] || existing+=("$file")
done
go tool -modfile=tools/prose/go.mod vale --config tools/prose/vale.ini --output=line "${existing[@]}"
