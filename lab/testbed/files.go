package testbed

import (
	"crypto/rand"
	"fmt"
	"math"
	mrand "math/rand/v2"
	"os"
	"strings"

	"github.com/fedmesh/fedmesh/lab/launch"
	"github.com/fedmesh/fedmesh/packaging/monitoring"
	"github.com/fedmesh/fedmesh/packaging/mosquitto"
)

// write writes the data, keys and configuration files of all programs to the folder of the testbed.
func (b *bed) write() error {
	rows := mrand.New(mrand.NewPCG(1, 2))
	err := firstOf(b.Put("data.csv", table(rows, 40*b.Agents)), b.Put("held-out.csv", table(rows, 1000)))
	for i := range predicting {
		err = firstOf(err, b.Put(b.ownRows(i), b.newRows(rows)))
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

// table returns a CSV table with n random rows whose target is a noisy linear function.
func table(rng *mrand.Rand, n int) []byte {
	text := []byte("load,speed,oil,wear\n")
	for range n {
		text = plane(text, rng)
	}
	return text
}

// plane appends a random CSV row to text, whose target is a noisy linear function of the features.
func plane(text []byte, rng *mrand.Rand) []byte {
	load, speed, oil := rng.NormFloat64(), rng.NormFloat64(), rng.NormFloat64()
	return fmt.Appendf(text, "%.4f,%.4f,%.4f,%.4f\n", load, speed, oil, 2*load-speed+0.5*oil+1+0.3*rng.NormFloat64())
}

// writePrograms writes the keys and configurations of the coordinator and the agents. writePrograms returns all users
// of the broker.
func (b *bed) writePrograms() ([]string, error) {
	users := []string{federation + "-coordinator"}
	b.consoleToken = rand.Text()
	config := b.coordinatorConfig(launch.Coordinator, b.coordinator, b.console)
	if err := firstOf(b.Put("console.tokens", []byte("operate "+b.consoleToken+" testbed\n")),
		b.Put("coordinator.yaml", []byte(config))); err != nil {
		return nil, err
	}
	ports, err := launch.FreeAddresses((b.Agents + 1) / 2)
	if err != nil {
		return nil, err
	}
	var list strings.Builder
	for i := range b.Agents {
		id := agentID(i)
		line, err := b.NewAgent(id)
		if err != nil {
			return nil, err
		}
		list.WriteString(line)
		users = append(users, federation+"-"+id)
		if i < predicting {
			users = append(users, siteUser(id))
		}
		listen := ""
		if i%2 == 0 {
			listen = ports[i/2]
		}
		if err := firstOf(b.Put(id+".yaml", []byte(b.agentConfig(i, listen))), b.writeMachine(i)); err != nil {
			return nil, err
		}
	}
	if b.Cluster {
		if err := b.writeMembers(list.String()); err != nil {
			return nil, err
		}
	}
	return users, b.Put("agents.keys", []byte(list.String()))
}

// brokerConfig returns the configuration with which a user connects to the broker.
func (b *bed) brokerConfig(user string) string {
	if !b.TLS {
		return fmt.Sprintf("{url: tcp://%s, username: %s, password_file: %s}", b.broker, user,
			b.PasswordFile(user))
	}
	cert := b.Path("certs/" + user)
	return fmt.Sprintf("{url: tls://%s, ca_file: %s, cert_file: %s.crt, key_file: %s.key}", b.broker,
		b.Path("certs/ca.crt"), cert, cert)
}

// coordinatorConfig returns the configuration of a coordinator whose agents mix, with rounds of a few seconds. The
// timeouts matter only if the machine is too slow for the number of agents.
func (b *bed) coordinatorConfig(name, metrics, console string) string {
	return b.CoordinatorYAML(name, b.brokerConfig(federation+"-coordinator"), fmt.Sprintf(`task:
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
console: {listen: %s, control: true, tokens_file: %s%s}`,
		2+b.Agents/20, 300*b.stretch(), 5+b.Agents/10, min(b.Agents/2, 12), 30+b.Agents, b.stretch(), b.Agents,
		b.Agents/2, b.Path("held-out.csv"), metrics, console, b.Path("console.tokens"), b.consoleURLs()))
}

// agentConfig returns the configuration of agent i. Agents have locations on a square grid, so that the mixing graph is
// connected.
func (b *bed) agentConfig(i int, listen string) string {
	id, side := agentID(i), int(math.Ceil(math.Sqrt(float64(b.Agents))))
	data := fmt.Sprintf("{csv: %s, shares: %d, share: %d}", b.Path("data.csv"), b.Agents, i)
	if i < predicting {
		data = fmt.Sprintf("{csv: %s, time: t}", b.Path(b.ownRows(i))) + b.predictConfig(id)
	}
	return b.AgentYAML(id, b.brokerConfig(federation+"-"+id), fmt.Sprintf(`data: %s
d2d: {uplink: true, place: {x: %d, y: %d}}
compute: {step_time: %dms}
evaluation: {held_out: 0.2}
budget: {bytes_per_month: 10GB}
device: {root: %s, load: {ease: 500, stop: 1000}, temperature: {ease: 60, stop: 75}, battery: {ease: 20, stop: 10}}
metrics: {listen: %q, report_every: %ds, advertise: %q, values: true}`, data, i%side, i/side, 5+i%5,
		b.Path("machine-"+id), listen,
		5*b.stretch(), listen))
}

// writeMachine writes simulated sysfs files with the sensors of an agent's device. Load and memory are read from this
// machine.
func (b *bed) writeMachine(i int) error {
	root := "machine-" + agentID(i) + "/"
	err := firstOf(
		b.Put(root+"sys/class/thermal/thermal_zone0/temp", fmt.Appendln(nil, 40_000+1000*(i%15))),
		b.Put(root+"sys/class/power_supply/BAT0/type", []byte("Battery\n")),
		b.Put(root+"sys/class/power_supply/BAT0/capacity", fmt.Appendln(nil, 100-7*i%70)),
		b.Put(root+"sys/class/power_supply/BAT0/status", []byte("Discharging\n")),
	)
	if err != nil {
		return err
	}
	return os.Symlink("/proc", b.Path(root+"proc"))
}

// writePasswords creates a password for each user and writes the password file of Mosquitto.
func (b *bed) writePasswords(users []string) error {
	passwords := map[string]string{}
	for _, u := range users {
		passwords[u] = rand.Text()
		if err := b.PutPassword(u, passwords[u]); err != nil {
			return err
		}
	}
	if b.tools.mosquitto == "" {
		return nil // The embedded broker reads the password files written above.
	}
	return launch.WriteMosquittoPasswords(b.Folder.Dir, passwords)
}

// writeMosquitto writes the access rules and the shipped configuration, adapted to the testbed's folder and address.
func (b *bed) writeMosquitto() error {
	shipped := mosquitto.PlainConf
	if b.TLS {
		shipped = mosquitto.Conf
	}
	rules, err := b.ours("coordinator", "acl", "--config", b.Path("coordinator.yaml"))
	for i := range predicting {
		id := agentID(i)
		rules += "\nuser " + siteUser(id) + "\ntopic write " + forecastsOf(id) + "\n"
	}
	return firstOf(err, b.Put("acl", []byte(rules)), launch.WriteMosquittoConf(shipped, b.Folder.Dir, b.broker))
}

// writePrometheus writes the rules and the shipped configuration, adapted to the testbed's address and its shorter
// intervals.
func (b *bed) writePrometheus() error {
	conf, err := monitoring.Files.ReadFile("prometheus.yml")
	if err != nil {
		return err
	}
	// All agents run on this machine, so Prometheus must scrape them at the addresses that they advertise.
	const alone = "targets: [127.0.0.1:9464]"
	const listed = "      - url: http://127.0.0.1:9464/sd/agents?via=coordinator\n        refresh_interval: 1m\n"
	if targets := b.members.metrics; b.Cluster {
		conf = []byte(strings.Replace(string(conf), alone, "targets: ["+strings.Join(targets, ", ")+"]", 1))
		lists := ""
		for _, address := range targets {
			lists += strings.ReplaceAll(listed, "127.0.0.1:9464", address)
		}
		conf = []byte(strings.Replace(string(conf), listed, lists, 1))
	}
	faster := strings.NewReplacer("127.0.0.1:9464", b.coordinator, "?via=coordinator", "",
		"interval: 15s", "interval: 2s", "interval: 1m", fmt.Sprintf("interval: %ds", 5*b.stretch()))
	if err := b.Put("prometheus/prometheus.yml", []byte(faster.Replace(string(conf)))); err != nil {
		return err
	}
	for _, name := range []string{"rules/recording.yml", "rules/alerts.yml"} {
		text, err := monitoring.Files.ReadFile(name)
		if err := firstOf(err, b.Put("prometheus/"+name, text)); err != nil {
			return err
		}
	}
	return nil
}
