#!/usr/bin/env bash
# Builds the documentation as a static site: `site.sh OUT`. The site needs no server and no network: open OUT/index.html. Its search
# works offline. The pages are those of docs/ and packaging/; the reference of commands and configuration is generated from the programs
# and from the sample files. Sphinx comes from PyPI. A broken link or anchor is an error.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(realpath -m "$1")
venv=bin/site
if ! cmp -s tools/site/requirements.txt "$venv/requirements.txt"; then
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/python" -m pip --quiet --disable-pip-version-check install -r tools/site/requirements.txt
  cp tools/site/requirements.txt "$venv"
fi
source=$(mktemp -d)
trap 'rm -rf "$source"' EXIT

# All files that git knows, so that links to them work.
git ls-files -z --cached --others --exclude-standard --deduplicate |
  while IFS= read -r -d '' file; do [ ! -e "$file" ] || printf '%s\0' "$file"; done | xargs -0 cp --parents -t "$source"

reference=$source/docs/reference
mkdir -p "$reference"
for program in agentd coordinator; do
  go test -count=1 ./cmd/$program -run '^TestManual$' -args -manual "$source/manual-$program" >/dev/null
  mv "$source/manual-$program/markdown" "$reference/$program"
  rm -r "$source/manual-$program"
  {
    echo "# Configuration of $program"
    echo
    echo "This is the sample file \`$program.yaml\`. It contains every key with its default."
    printf '\n```yaml\n'
    cat "packaging/$program.yaml"
    printf '```\n'
  } >"$reference/$program.yaml.md"
done

# The order of the pages in the navigation.
toctree() { # toctree CAPTION PAGE...
  printf '\n```{toctree}\n:hidden:\n:caption: %s\n' "$1"
  shift
  printf '%s\n' "$@"
  echo '```'
}
howto=("$source"/docs/howto/*.md)
{
  toctree Start tutorial.md
  toctree "How to" "${howto[@]#"$source/docs/"}" ../packaging/monitoring/runbooks/README.md
  toctree Reference reference/agentd.yaml.md reference/coordinator.yaml.md reference/agentd/agentd.md \
    reference/coordinator/coordinator.md DATA.md MODEL.md TRAINER.md METRICS.md API.md STATE.md PROTOCOL.md ALGORITHMS.md SIMULATION.md GLOSSARY.md
  toctree Explanations SECURITY.md RELIABILITY.md MIXING.md ROBUSTNESS.md SCALE.md BROKERS.md BENCHMARKS.md EXPERIMENTS.md
  toctree Development ../CONTRIBUTING.md ARCHITECTURE.md ../CHANGELOG.md
} >>"$source/docs/README.md"

"$venv/bin/sphinx-build" --quiet --fail-on-warning --keep-going -b html -c tools/site "$source" "$out"
printf '<!doctype html><meta http-equiv="refresh" content="0; url=docs/README.html"><title>fedmesh</title>\n' >"$out/index.html"
echo "$out/index.html"
