# Runs packaging/cluster/compose.yml with podman, in namespaces of its own, as the README beside it says, and tells what it
# finds. $DIR has what the test has made, $SHIPPED is packaging/cluster.
. "$(dirname "$0")/podman.sh"

VERSION=$(load coordinator)
tar --create --directory="$(dirname "$NATS")" nats-server |
  podman import --quiet --change 'ENTRYPOINT ["/nats-server"]' - docker.io/library/nats:2.15.2

export VERSION ETC=$DIR/etc UID_GID=1000:1000
mkdir certificates
(cd certificates && sh -ec "$(sed -n '/^```sh$/,/^```$/{/^```/!p}' "$SHIPPED/README.md")" 2>openssl.log) || cat certificates/openssl.log
cp certificates/ca.crt certificates/n?.crt certificates/n?.key "$ETC"
public=$("$BIN/coordinator" key new coordinator.key)
echo "station-1 $("$BIN/agentd" key new agent.key)" >agents.keys
sed -i "s|%q|\"$public\"|" agentd.yaml
for i in 1 2 3; do
  mkdir "$ETC/nats-$i" "$ETC/state-$i" "$ETC/coordinator-$i"
  cp coordinator.key agents.keys coordinator.yaml certificates/nats.crt certificates/nats.key "$ETC/coordinator-$i"
  cp certificates/ca.crt "$ETC/coordinator-$i/nats-ca.crt"
done
chown -R 1000:1000 "$ETC"

compose() { docker-compose --project-name plant --file "$SHIPPED/compose.yml" "$@"; }
logs() { podman logs "plant_$1_1" 2>&1; }
leader() {
  for c in c1 c2 c3; do
    [ "$c" != "${gone:-}" ] && logs $c | grep -q "this coordinator is now the leader" && echo $c && return
  done
  return 1
}
rounds() { cat "$ETC/state-${1#c}/history.jsonl" 2>/dev/null | wc -l; }
more() { [ "$(rounds "$1")" -ge "$2" ]; }

mosquitto -c mosquitto.conf >mosquitto.log 2>&1 &
start_api
compose up --detach 2>compose.log || cat compose.log
"$BIN/agentd" run --config agentd.yaml >agentd.log 2>&1 &
await "nobody leads" leader
gone=$(leader)
await "no rounds" more "$gone" 3
before=$(rounds "$gone")
podman kill "plant_${gone}_1" >kill.log
await "nobody follows" leader
tell "$(leader) follows $gone"
await "no rounds of who follows" more "$(leader)" $((before + 3))
compose down >down.log 2>&1
tell done
