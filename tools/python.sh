#!/usr/bin/env bash
# Builds and checks the wheel and the sdist of packaging/python, installs the wheel in a separate environment, and runs
# the tests in the sdist. `python.sh` installs only numpy. `python.sh all` also installs the newest scikit-learn,
# PyTorch and Flower, and allows no skipped test. It also runs the notebook of the examples, mypy, `agentd trainer
# check`, and the tests with the tag pytorch. It needs PyPI, and with `all` temporarily 7 GB in TMPDIR, since PyPI's
# PyTorch includes CUDA.
set -euo pipefail
cd "$(dirname "$0")/.."
home=$PWD
all=${1:-}
case $all in '' | all) ;; *) echo "python.sh: $all: want nothing, or all" >&2; exit 2 ;; esac

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/tools" # the checkers' dependencies must not affect the tests
python3 -m venv "$folder/venv"
tool=$folder/tools/bin/python python=$folder/venv/bin/python
pip=(-m pip --quiet --disable-pip-version-check --no-cache-dir install)

tools/wheel.sh "$folder/dist"
"$tool" "${pip[@]}" twine mypy
"$tool" -m twine check --strict "$folder"/dist/*

wheel=$(echo "$folder"/dist/*.whl)
"$python" "${pip[@]}" pytest "$wheel${all:+[agent,sklearn,torch,flower]}"
tar -xf "$folder"/dist/*.tar.gz -C "$folder"
cd "$folder"/fedmesh-*/
rm -r src # the tests must import the wheel
if [ "$all" = all ]; then # dependencies of the notebook and the examples
  "$python" "${pip[@]}" nbclient ipykernel matplotlib
  CGO_ENABLED=0 go build -C "$home" -o "$folder/" ./cmd/agentd ./cmd/fedlab
fi
PATH=$folder:$PATH "$python" -B -m pytest | tee "$folder/log"
[ "$all" = all ] || exit 0
if grep -q '^SKIPPED' "$folder/log"; then
  echo "python.sh: skipped, although all is installed" >&2
  exit 1
fi
(cd "$home/packaging/python" && "$tool" -m mypy --python-executable "$python" --cache-dir "$folder/mypy")

# Check one trainer of each kind with the finished agentd.
examples=$PWD/examples tests=$PWD/tests trainer=$folder/venv/bin/fedmesh-trainer
cd "$home"
look() { # look TARGET ARGUMENT...
  echo "== $*"
  PYTHONPATH=$examples:$tests "$trainer" --initial "$folder/initial.safetensors" "$@"
  "$folder/agentd" trainer check --initial "$folder/initial.safetensors" --dir "$folder" \
    --env "PYTHONPATH=$examples:$tests" -- "$trainer" "$@"
}
look digits:make 0 4
look fashion:make 0 10 1000
look fedmesh.flower:Adapter flower_client:client_fn partition-id=1 local-epochs=2

# Train with three agentds and PyTorch over Mosquitto.
PATH=$folder/venv/bin:$PATH CI=true go test -tags pytorch -count=1 -timeout 15m -v -run 'TestFashion$' ./internal/interop
