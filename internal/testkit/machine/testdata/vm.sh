# Runs in an emulated machine as a service, and tells the console what it finds. The machine goes off at its end.
exec >/dev/console 2>&1
trap 'poweroff --force' EXIT

tell() { echo "TEST $*"; }
fail() {
  tell "failed: $*"
  journalctl --no-pager --unit=agentd --unit=coordinator --unit=mosquitto | tail -n 60
  exit 1
}
property() { systemctl show --value --property="$1" "$2"; }

# await SECONDS WHAT COMMAND...
await() {
  local last=$((SECONDS + $1)) what=$2
  shift 2
  until "$@"; do
    [ $SECONDS -lt $last ] || fail "$what"
    sleep 1
  done
}

tell "kernel $(uname -srm), up for $(cut -d ' ' -f 1 /proc/uptime) s"
for program in agentd coordinator; do
  useradd --system --user-group --no-create-home --home-dir /var/lib/$program --shell /usr/sbin/nologin $program
done
printf 'station-1 %s\n' "$(agentd key new /etc/agentd/agent.key)" >/etc/coordinator/agents.keys
key=$(coordinator key new /etc/coordinator/coordinator.key)
sed "s|%q|\"$key\"|" /etc/agentd/agentd.yaml.in >/etc/agentd/agentd.yaml

mkdir -p /etc/systemd/system/agentd.service.d
# The state is in memory here too, and counts: 8 MB that a device has on its disk.
printf '[Service]\nMemoryMax=40M\nEnvironment=GOMEMLIMIT=26MiB\n' >/etc/systemd/system/agentd.service.d/memory.conf
agentd service install || fail "agentd service install"
coordinator service install --now || fail "coordinator service install"
agentd service start || fail "agentd service start"

finished() { property StatusText coordinator | grep -q 'finished (rounds), with version 2'; }
await 600 "the rounds do not end" finished
tell "model=$(coordinator model list --state-dir /var/lib/coordinator | tail -n 1 | tr -s " " | cut -d " " -f 2)"
group=/sys/fs/cgroup$(property ControlGroup agentd)
tell "limit=$(cat "$group/memory.max")"
tell "$(grep -E '^(anon|file|shmem|kernel) ' "$group/memory.stat" | tr '\n' ' ')"
tell "restarts=$(property NRestarts agentd)"
agentd service status
journalctl --no-pager --unit=agentd | tail -n 30

printf '[Service]\nMemoryMax=3M\n' >/etc/systemd/system/agentd.service.d/memory.conf
systemctl daemon-reload
systemctl restart --no-block agentd
killed() { [ "$(property NRestarts agentd)" -gt 0 ]; }
await 120 "nothing is killed" killed
tell "killed=$(property NRestarts agentd)"
tell done
