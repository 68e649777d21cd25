#!/usr/bin/env bash
# Builds the wheel and the sdist of packaging/python: `wheel.sh OUT [VERSION]`. The default version is in
# pyproject.toml. The same commit gives the same bytes; therefore the version of setuptools is fixed. It needs PyPI.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(realpath -m "$1")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
umask 022
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH

# Build from tracked files and new files that git does not ignore, without caches and environments.
mkdir "$folder/all"
git ls-files -z --cached --others --exclude-standard --deduplicate packaging/python | xargs -0 cp --parents -t "$folder/all"
source=$folder/all/packaging/python
cp LICENSE "$source"
chmod -R u=rwX,go=rX "$source"
[ -z "${2:-}" ] || sed -i "s/^version = .*/version = \"$2\"/" "$source/pyproject.toml"
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip --quiet --disable-pip-version-check --no-cache-dir install build setuptools==84.2.1
"$folder/venv/bin/python" -m build --no-isolation --outdir "$folder/dist" "$source" >"$folder/built" || { cat "$folder/built"; exit 1; }

# Repack the sdist, since setuptools stores the time and the user of the build in it.
sdist=$(basename "$folder"/dist/*.tar.gz)
tar -xf "$folder/dist/$sdist" -C "$folder"
mkdir -p "$out"
tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --format=ustar -cf - -C "$folder" "${sdist%.tar.gz}" |
  gzip -9n >"$out/$sdist"
cp "$folder"/dist/*.whl "$out"
