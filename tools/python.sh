#!/usr/bin/env bash
# Builds the wheel and the sdist of packaging/python, looks at them, installs the wheel in an environment of its own and runs the tests
# that the sdist holds: `python.sh` with numpy alone; `python.sh all` with the newest scikit-learn, PyTorch and Flower too, where no test
# may be skipped, the notebook of the examples, mypy, `agentd trainer check`, and the tests with the tag pytorch. It needs PyPI, and `all` 7 GB in TMPDIR for that long: PyPI has PyTorch only with CUDA.
set -euo pipefail
cd "$(dirname "$0")/.."
home=$PWD
all=${1:-}
case $all in '' | all) ;; *) echo "python.sh: $all: want nothing, or all" >&2; exit 2 ;; esac

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/tools" # what looks at it has other wishes than what is tested
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
rm -r src # the tests are to find the wheel
if [ "$all" = all ]; then # what the notebook and the examples run with
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

# The finished agentd looks at a trainer of each sort.
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

# Three agentds with PyTorch over Mosquitto.
PATH=$folder/venv/bin:$PATH CI=true go test -tags pytorch -count=1 -timeout 15m -v -run 'TestFashion$' ./internal/interop
