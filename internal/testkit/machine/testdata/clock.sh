# Runs in an emulated machine as a service, and tells the console what it finds. The machine goes off at its end.
exec >/dev/console 2>&1
trap 'poweroff --force' EXIT

tell() { echo "TEST $*"; }
fail() {
  tell "failed: $*"
  tail -n 20 /srv/*.log
  exit 1
}
up() { cut -d ' ' -f 1 /proc/uptime; } # a clock that nobody turns
since() { awk "BEGIN { printf \"%.1f\", $(up) - $1 }"; }

# await SECONDS WHAT COMMAND...
await() {
  local last=$(($(up | cut -d . -f 1) + $1)) what=$2
  shift 2
  until "$@" >/dev/null; do
    [ "$(up | cut -d . -f 1)" -lt $last ] || fail "$what"
    sleep 0.2
  done
}

leads() { grep -l "this coordinator is now the leader" /srv/c?.log | grep -v -e "^/srv/${gone:-none}.log"; }
rounds() { cat "/srv/$leader/history.jsonl" 2>/dev/null | wc -l; }
more_rounds() { [ "$(rounds)" -ge $1 ]; }

cd /srv || exit 1
nats-server -c nats.conf >nats.log 2>&1 &
agents=$(printf 'station-1 %s' "$(agentd key new agent.key)")
key=$(coordinator key new coordinator.key)
sed "s|%q|\"$key\"|" agentd.yaml.in >agentd.yaml
for c in c1 c2 c3; do
  echo "$agents" >$c.keys
  sed "s|NAME|$c|" coordinator.yaml.in >$c.yaml
  coordinator run --config $c.yaml >$c.log 2>&1 &
  eval "$c=$!"
done
agentd run --config agentd.yaml >agent.log 2>&1 &

await 120 "nobody leads" leads
leader=$(basename "$(leads)" .log)
await 120 "no rounds" more_rounds 3
tell "leader=$leader"

# Longer than the lease, with the clock turned by more than that.
for turn in "+1 hour" "-1 day" "+20 seconds" "-20 seconds" "+10 years"; do
  was=$(date +%s)
  date --set "$(date --date "$turn")" >/dev/null || fail "the clock cannot be set"
  [ $(($(date +%s) - was)) -ne 0 ] || fail "the clock was not turned"
  before=$(rounds)
  sleep 18
  [ "$(leads | wc -l)" = 1 ] || fail "after $turn another coordinator leads: $(leads)"
  await 30 "no rounds after $turn" more_rounds $((before + 3))
  tell "rounds after $turn: $(($(rounds) - before))"
done

# And while nobody leads.
gone=$leader killed=$(up)
kill -KILL "${!leader}"
date --set "$(date --date "-5 years")" >/dev/null
await 60 "nobody leads after a kill" leads
leader=$(basename "$(leads)" .log)
opened() { grep -q "round opened" "/srv/$leader.log"; }
await 60 "no round after a kill" opened
tell "follows=$(since "$killed") s later"
before=$(rounds)
await 60 "no rounds of who follows" more_rounds $((before + 3))
! grep -h "round abandoned" c?.log || fail "a round was abandoned"
tell done
