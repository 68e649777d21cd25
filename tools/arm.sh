#!/usr/bin/env bash
# Runs the unit tests of `make quick` as ARM code under qemu-user. Tests that start programs or real brokers are
# excluded. So are the documents' experiments, which take long and depend little on the processor, and tests that start
# themselves, which would run without qemu.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

# qemu hangs for minutes when Go preempts goroutines by signals.
export CGO_ENABLED=0 GODEBUG=asyncpreemptoff=1

leave_out='/(cmd/fedlab|lab/(air|bench|datasets|demo|faults|fold|monitoring|plot|reproduce|simulate|testbed|wisdm)|agent/external|internal/(archtest|e2e|chaos|conformance|interop|testkit/(acltest|brokers|machine))|mqtt/broker|packaging)(/|$)'
skip='^(TestProxyOfTheEnvironmentIsNotAsked|TestUpdatesWaitForRoom|Test(WriteFile|Spool|History|Partial)OnFullDisk)$'
mapfile -t packages < <(go list ./... | grep -Ev "$leave_out"; echo ./mqtt/broker/acl)
failed=()
while read -r arch variant qemu; do
  [ -n "$arch" ] || continue
  echo "== $arch ${variant#*=} (at ${SECONDS} s)"
  env GOARCH="$arch" "$variant" go test -short -count=1 -timeout 30m -skip "$skip" -exec "$qemu" "${packages[@]}" </dev/null ||
    failed+=("$arch ${variant#*=}")
done <<'END'
arm64 GOARM64=v8.0 qemu-aarch64-static
arm   GOARM=7      qemu-arm-static
END
[ ${#failed[@]} = 0 ] && exit 0
printf 'arm: failed on %s\n' "${failed[@]}" >&2
exit 1
