package testbed

import (
	"bytes"
	"crypto/rand"
	"crypto/subtle"
	"fmt"
	"math"
	mrand "math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"github.com/fedmesh/fedmesh/lab/launch"
	"github.com/fedmesh/fedmesh/packaging/monitoring"
	"github.com/fedmesh/fedmesh/packaging/mosquitto"
)

// put writes a file of the testbed.
func (b *bed) put(name string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(b.path(name)), 0o700); err != nil {
		return err
	}
	return os.WriteFile(b.path(name), data, 0o600)
}

// write writes all files.
func (b *bed) write() error {
	rows := mrand.New(mrand.NewPCG(1, 2))
	err := firstOf(b.put("data.csv", table(rows, 40*b.Agents)), b.put("held-out.csv", table(rows, 1000)))
	for i := range predicting {
		err = firstOf(err, b.put(b.ownRows(i), b.newRows(rows)))
	}
	var users []string
	if err == nil {
		users, err = b.writePrograms()
	}
	if err == nil && b.TLS {
		err = b.writeCertificates(users)
	} else if err == nil {
		err = b.writePasswords(users)
	}
	if err == nil && b.tools.mosquitto != "" {
		err = b.writeMosquitto()
	}
	return firstOf(err, b.writePrometheus(), b.writeGrafana())
}

// table makes n rows of a noisy plane.
func table(rng *mrand.Rand, n int) []byte {
	text := []byte("load,speed,oil,wear\n")
	for range n {
		text = plane(text, rng)
	}
	return text
}

// plane adds a row.
func plane(text []byte, rng *mrand.Rand) []byte {
	load, speed, oil := rng.NormFloat64(), rng.NormFloat64(), rng.NormFloat64()
	return fmt.Appendf(text, "%.4f,%.4f,%.4f,%.4f\n", load, speed, oil, 2*load-speed+0.5*oil+1+0.3*rng.NormFloat64())
}

// writePrograms writes the keys and configurations of the coordinator and the
// agents, and returns all users of the broker.
func (b *bed) writePrograms() ([]string, error) {
	public, err := b.ours("coordinator", "key", "new", b.path("coordinator.key"))
	if err != nil {
		return nil, err
	}
	users := []string{federation + "-coordinator"}
	if err := b.put("coordinator.yaml", b.coordinatorConfig()); err != nil {
		return nil, err
	}
	ports, err := launch.FreeAddresses((b.Agents + 1) / 2)
	if err != nil {
		return nil, err
	}
	var list strings.Builder
	for i := range b.Agents {
		id := agentID(i)
		key, err := b.ours("agentd", "key", "new", b.path(id+".key"))
		if err != nil {
			return nil, err
		}
		list.WriteString(id + " " + key)
		users = append(users, federation+"-"+id)
		if i < predicting {
			users = append(users, siteUser(id))
		}
		listen := "" // every other agent is reached by nobody, as behind NAT
		if i%2 == 0 {
			listen = ports[i/2]
		}
		if err := firstOf(b.put(id+".yaml", b.agentConfig(i, strings.TrimSpace(public), listen)),
			b.writeMachine(i)); err != nil {
			return nil, err
		}
	}
	if b.Cluster {
		if err := b.writeMembers(list.String()); err != nil {
			return nil, err
		}
	}
	return users, b.put("agents.keys", []byte(list.String()))
}

// brokerConfig is how a user reaches the broker.
func (b *bed) brokerConfig(user string) string {
	if !b.TLS {
		return fmt.Sprintf("{url: tcp://%s, username: %s, password_file: %s}", b.broker, user,
			b.path("passwords/"+user))
	}
	cert := b.path("certs/" + user)
	return fmt.Sprintf("{url: tls://%s, ca_file: %s, cert_file: %s.crt, key_file: %s.key}", b.broker,
		b.path("certs/ca.crt"), cert, cert)
}

// coordinatorConfig is a federation whose agents mix, in rounds of seconds. Its
// times are bounds for a machine that is too small for this many agents; where
// there is room, nothing waits for them.
func (b *bed) coordinatorConfig() []byte {
	return fmt.Appendf(nil, `
federation: %s
state_dir: %s
broker: %s
identity: {key_file: %s, agents_file: %s}
task:
  name: wear
  features: [load, speed, oil]
  target: wear
  step_size: {constant: 0.02, normalize: false}
  batch_size: 8
  codec: top_k:0.25
  steps: {budget: 2s, min: 1, max: 8}
  mixing: {every: 2, wait: %ds, repeat: %dms, drain: %ds}
round:
  algorithm: feddec
  participants: %d
  quorum: 3
  sampling: with_replacement
  deadline: %ds
  pause: %ds
  gather: {target: %d, minimum: %d, within: 10s, spread: 1s}
  evaluation: {every: 2, min_rows: 1}
mesh: {edges: radius, radius: 1.3}
held_out: {csv: %s}
metrics: {listen: %s}
`, federation, b.path("state"), b.brokerConfig(federation+"-coordinator"), b.path("coordinator.key"), b.path("agents.keys"),
		2+b.Agents/20, 300*b.stretch(), 5+b.Agents/10, min(b.Agents/2, 12), 30+b.Agents, b.stretch(), b.Agents,
		b.Agents/2, b.path("held-out.csv"), b.coordinator)
}

// agentConfig is an agent on a square grid, so that the graph is connected.
func (b *bed) agentConfig(i int, coordinatorKey, listen string) []byte {
	id, side := agentID(i), int(math.Ceil(math.Sqrt(float64(b.Agents))))
	data := fmt.Sprintf("{csv: %s, shares: %d, share: %d}", b.path("data.csv"), b.Agents, i)
	if i < predicting {
		data = fmt.Sprintf("{csv: %s, time: t}", b.path(b.ownRows(i))) + b.predictConfig(id)
	}
	return fmt.Appendf(nil, `
federation: %s
id: %s
state_dir: %s
broker: %s
identity: {key_file: %s, coordinator_key: %q}
data: %s
d2d: {uplink: true, place: {x: %d, y: %d}}
compute: {step_time: %dms}
evaluation: {held_out: 0.2}
budget: {bytes_per_month: 10GB}
device: {root: %s, load: {ease: 500, stop: 1000}, temperature: {ease: 60, stop: 75}, battery: {ease: 20, stop: 10}}
metrics: {listen: %q, report_every: %ds, advertise: %q}
`, federation, id, b.path("state-"+id), b.brokerConfig(federation+"-"+id), b.path(id+".key"), coordinatorKey,
		data, i%side, i/side, 5+i%5, b.path("machine-"+id), listen, 5*b.stretch(), listen)
}

// writeMachine writes what the kernel of an agent's device would tell of its sensors. Load and memory are this
// machine's.
func (b *bed) writeMachine(i int) error {
	root := "machine-" + agentID(i) + "/"
	err := firstOf(
		b.put(root+"sys/class/thermal/thermal_zone0/temp", fmt.Appendln(nil, 40_000+1000*(i%15))),
		b.put(root+"sys/class/power_supply/BAT0/type", []byte("Battery\n")),
		b.put(root+"sys/class/power_supply/BAT0/capacity", fmt.Appendln(nil, 100-7*i%70)),
		b.put(root+"sys/class/power_supply/BAT0/status", []byte("Discharging\n")),
	)
	if err != nil {
		return err
	}
	return os.Symlink("/proc", b.path(root+"proc"))
}

// writePasswords gives each user one, as mosquitto_passwd keeps them.
func (b *bed) writePasswords(users []string) error {
	passwords := map[string]string{}
	for _, u := range users {
		passwords[u] = rand.Text()
		if err := b.put("passwords/"+u, []byte(passwords[u]+"\n")); err != nil {
			return err
		}
	}
	if b.tools.mosquitto == "" {
		return nil // the embedded broker knows the files above
	}
	return launch.WriteMosquittoPasswords(b.Dir, passwords)
}

// knows is how the embedded broker tells a user's password.
func (b *bed) knows(_, user, password string) bool {
	if filepath.Base(user) != user {
		return false
	}
	want, err := os.ReadFile(b.path("passwords/" + user))
	return err == nil && subtle.ConstantTimeCompare(bytes.TrimSpace(want), []byte(password)) == 1
}

// writeMosquitto writes the shipped configuration, with this testbed's folder and
// address, and the access rules.
func (b *bed) writeMosquitto() error {
	shipped := mosquitto.PlainConf
	if b.TLS {
		shipped = mosquitto.Conf
	}
	rules, err := b.ours("coordinator", "acl", "--config", b.path("coordinator.yaml"))
	for i := range predicting {
		id := agentID(i)
		rules += "\nuser " + siteUser(id) + "\ntopic write " + forecastsOf(id) + "\n"
	}
	return firstOf(err, b.put("acl", []byte(rules)), launch.WriteMosquittoConf(shipped, b.Dir, b.broker))
}

// writePrometheus writes the shipped configuration, with this testbed's address
// and times in the place of minutes, and the rules.
func (b *bed) writePrometheus() error {
	conf, err := monitoring.Files.ReadFile("prometheus.yml")
	if err != nil {
		return err
	}
	// its agents are this machine's, and are scraped where they say
	const alone = "targets: [127.0.0.1:9464]"
	const listed = "      - url: http://127.0.0.1:9464/sd/agents?via=coordinator\n        refresh_interval: 1m\n"
	if targets := b.members.metrics; b.Cluster { // the list of agents is at the one that leads
		conf = []byte(strings.Replace(string(conf), alone, "targets: ["+strings.Join(targets, ", ")+"]", 1))
		lists := ""
		for _, address := range targets {
			lists += strings.ReplaceAll(listed, "127.0.0.1:9464", address)
		}
		conf = []byte(strings.Replace(string(conf), listed, lists, 1))
	}
	faster := strings.NewReplacer("127.0.0.1:9464", b.coordinator, "?via=coordinator", "",
		"interval: 15s", "interval: 2s", "interval: 1m", fmt.Sprintf("interval: %ds", 5*b.stretch()))
	if err := b.put("prometheus/prometheus.yml", []byte(faster.Replace(string(conf)))); err != nil {
		return err
	}
	for _, name := range []string{"rules/recording.yml", "rules/alerts.yml"} {
		text, err := monitoring.Files.ReadFile(name)
		if err := firstOf(err, b.put("prometheus/"+name, text)); err != nil {
			return err
		}
	}
	return nil
}
