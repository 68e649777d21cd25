#!/usr/bin/env bash
# Checks our sentences with Vale and the rules in tools/prose/styles: Markdown pages, comments in Go files, and the messages of the
# programs (log messages, errors, remedies, help texts), which tools/prose/messages writes as text. `prose.sh FILE...` checks only
# these files.
set -euo pipefail
cd "$(dirname "$0")/.."
messages=bin/prose
rm -rf "$messages"
mkdir -p "$messages"
if [ $# -gt 0 ]; then files=("$@"); else
  mapfile -t files < <(git ls-files --cached --others --exclude-standard --deduplicate -- '*.go' '*.md' ':!*/testdata/*')
fi
existing=()
programs=()
for file in "${files[@]}"; do
  [ -e "$file" ] || continue
  existing+=("$file")
  case $file in *_test.go) ;; *.go) programs+=("$file") ;; esac
done
[ ${#programs[@]} -eq 0 ] || go run ./tools/prose/messages/main.go "$messages" "${programs[@]}"
go tool -modfile=tools/prose/go.mod vale --config tools/prose/vale.ini --output=line "${existing[@]}" "$messages"
