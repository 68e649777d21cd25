# Follows packaging/compose/README.md with podman, in namespaces of its own, and tells what it finds. $DIR has the files of
# the devices, $ROOT is the file system of a Debian with jq, $PACKAGING is the folder packaging.
. "$(dirname "$0")/podman.sh"

version=$(load agentd)
load coordinator >/dev/null
agentd=ghcr.io/fedmesh/agentd:$version
# The public images, with Debian's programs: the same names, entry points and paths.
import() { podman import --quiet "$@"; }
tar --create --directory="$ROOT" . | import - docker.io/library/eclipse-mosquitto:2.0.22
tar --create --directory="$ROOT" . | import - localhost/base-with-jq
mkdir -p prometheus/bin
cp "$(command -v prometheus)" "$(command -v promtool)" prometheus/bin
tar --create --directory="$ROOT" --exclude=./bin . --directory="$DIR" --transform 's,^prometheus,./usr,' \
  prometheus/bin/prometheus prometheus/bin/promtool | import --change 'ENTRYPOINT ["/usr/bin/prometheus"]' \
  --change 'CMD ["--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus"]' \
  --change 'WORKDIR /prometheus' - docker.io/prom/prometheus:v2.53.5

# The commands of the page. "docker" is podman, and Debian's docker-compose.
docker() {
  if [ "$1" = compose ]; then docker-compose --project-name fm "${@:2}"; else podman "$@"; fi
}
# step N: runs the block N of commands on the page, with this machine's version, user and number of devices.
step() {
  eval "$(awk -v n="$1" '/^ *```sh$/ { block++; on = 1; next } /^ *```$/ { on = 0 } on && block == n' "$PACKAGING/compose/README.md" |
    sed -e 's/^   //' -e "s/VERSION=0.1.0/VERSION=$version/" -e 's/\$(id -u):\$(id -g)/1000:1000/' -e 's/--agents 5/--agents 3/')"
}
mkdir plant
cp -r "$PACKAGING/compose" "$PACKAGING/monitoring" plant
cd plant/compose
start_api
step 2
cp ../../sample.csv etc/coordinator
chown -R 1000:1000 etc state
step 3
step 4
for file in $(sed -n 's/^ *- \(\.[^:]*\):.*/\1/p' compose.yml); do [ -e "$file" ] || fail "compose.yml mounts $file, which does not exist"; done
docker compose config --quiet
docker compose up --detach mosquitto coordinator prometheus >"$DIR/compose.log" 2>&1 || cat "$DIR/compose.log"
await "the coordinator does not answer" step 6
cd "$DIR"

# Two devices with our image, as in docs/howto/run-in-a-container.md. "--network=host" is the network of the script.
token() { (cd plant/compose && docker compose exec -T coordinator coordinator enrol --device "$1") | grep -o 'fm1[^ ]*'; }
host="--network=host --add-host=gw.example:$(podman network inspect fm_default --format '{{range .Subnets}}{{.Gateway}}{{end}}')"
for id in station-1 station-2; do
  mkdir $id
  chown 65532:65532 $id
  podman run --rm --read-only $host --volume "$DIR/$id:/etc/agentd" "$agentd" join https://gw.example:8884 --token "$(token $id)" \
    --set data.csv=/data/$id.csv --set metrics.listen= >$id.log
  podman run --detach --name $id --read-only --read-only-tmpfs=false --cap-drop ALL --security-opt no-new-privileges $host \
    --health-cmd '["/usr/bin/agentd", "status"]' --health-interval 30s --volume "$DIR/$id:/etc/agentd:ro" \
    --volume $id-state:/var/lib/agentd --volume "$DIR:/data:ro" "$agentd" >/dev/null
done

# The add-on of Home Assistant, with the options that its user sets. The first start joins, and fails because agentd.yaml has no
# data yet.
podman build --quiet --format docker --build-arg BUILD_FROM=localhost/base-with-jq --build-arg "BUILD_VERSION=$version" --tag localhost/addon \
  "$PACKAGING/homeassistant" >/dev/null
mkdir addon addon/config addon/data
echo "{\"join_url\": \"https://gw.example:8884\", \"token\": \"$(token station-3)\", \"id\": \"\"}" >addon/data/options.json
addon() {
  podman run $host --volume "$DIR/addon/config:/config" --volume "$DIR/addon/data:/data" --volume "$DIR:/share:ro" "$@" localhost/addon
}
! addon --rm >addon.log 2>&1 || fail "the add-on runs without data"
grep -q "station-3 has joined" addon.log && grep -q data.csv addon.log || fail "the add-on says $(cat addon.log)"
# The configuration of DOCS.md is valid below the joined configuration.
(umask 077 && echo secret >addon/config/readings-password)
awk '/^```yaml$/ { on = 1; next } /^```$/ { on = 0 } on' "$PACKAGING/homeassistant/DOCS.md" | cat addon/config/agentd.yaml - >addon/config/docs.yaml
podman run --rm --volume "$DIR/addon/config:/config" --entrypoint /usr/bin/agentd localhost/addon config check --config /config/docs.yaml \
  >docs.log 2>&1 || fail "the configuration of DOCS.md: $(cat docs.log)"
echo 'data: {csv: /share/station-3.csv}' >>addon/config/agentd.yaml
addon --detach --name station-3 >/dev/null

accepted() { podman logs fm_coordinator_1 2>&1 | grep -c "kind=training accepted=3"; }
rounds() { [ "$(accepted)" -ge 3 ]; }
await "no rounds with updates of three devices" rounds
tell "$(accepted) rounds with updates of three devices"
for c in station-1 station-2 station-3 fm_coordinator_1 fm_prometheus_1; do
  podman healthcheck run $c >health.log 2>&1 || fail "$c is not healthy: $(cat health.log)"
  tell "$c $(podman inspect --format '{{.State.Health.Status}} {{.Config.User}} {{.HostConfig.ReadonlyRootfs}}' $c)"
done
podman kill --signal STOP station-1 >kill.log
! podman healthcheck run station-1 >kill.log 2>&1 || fail "a stopped agent is healthy"
targets() { podman exec fm_prometheus_1 promtool query instant http://127.0.0.1:9090 'sum(up)' | grep -q '=> [2-9]'; }
await "Prometheus reads no metrics" targets
python3 -c 'import sys, urllib.request as u; sys.stdout.write(u.urlopen("http://127.0.0.1:9090/api/v1/rules").read().decode())' >rules.json
grep -q AgentsSilent rules.json || fail "Prometheus has no alerts: $(cat rules.json)"
docker compose --file plant/compose/compose.yml down >"$DIR/down.log" 2>&1
tell done
