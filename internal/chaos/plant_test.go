//go:build chaos

package chaos

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
	"github.com/fedmesh/fedmesh/lab/launch"
)

// plant is a federation under test: a coordinator and agents as processes with their own Mosquitto.
type plant struct {
	*testkit.Federation
	t      *testing.T
	rng    *rand.Rand
	broker *brokers.Mosquitto
	ids    []string
	lead   *testkit.Process
	url    string // URL of the coordinator's metrics
	agents map[string]*testkit.Process
	extra  map[string][]string // additional command-line arguments of each agent
}

type layout struct {
	agents   int
	quorum   int           // quorum of a round; 0 means the number of agents
	deadline time.Duration // deadline of a round; 0 means one minute
	hidden   int           // number of hidden units; 0 selects a linear model
	conf     string        // additional lines of mosquitto.conf
	liar     bool          // true to prepare an additional agent that sends false data
	round    string        // additional keys of the section round
}

// All agents take the same number of local steps on all of their rows. Therefore the model depends only on the set of
// updates, and not on timing.
const task = `{name: plane, features: [a, b], target: y, batch_size: 0, steps: {budget: 30s, min: 3, max: 3}, step_size: {constant: 0.05}, model: {%s}}`

func newPlant(t *testing.T, l layout) *plant {
	t.Helper()
	m := brokers.NewMosquitto(t, []byte(brokers.AnonymousListenerConf+l.conf))
	m.Start(t)
	p := &plant{
		Federation: testkit.NewFederation(t, programs, "chaos", "tcp://"+m.Address), t: t, broker: m,
		rng: rand.New(rand.NewPCG(*seed, 0)), agents: map[string]*testkit.Process{}, extra: map[string][]string{},
	}
	var list strings.Builder
	for i := range l.agents {
		id := fmt.Sprintf("agent-%d", i)
		p.ids = append(p.ids, id)
		list.WriteString(p.AddAgent(t, id, testkit.NoisyPlane(60+3*i, i)))
	}
	all := l.agents
	if l.liar {
		p.AddAgent(t, "liar", testkit.NoisyPlane(60, 98))
		p.MustRun(t, "fedlab", "fleet", "--agents", "1", "--config", p.Path("liar.yaml"), "--write-keys",
			p.Path("liars"))
		keys, err := os.ReadFile(p.Path("liars"))
		if err != nil {
			t.Fatal(err)
		}
		list.Write(keys)
		all++
	}
	if l.quorum == 0 {
		l.quorum = all
	}
	if l.deadline == 0 {
		l.deadline = time.Minute
	}
	model := "kind: linear"
	if l.hidden > 0 {
		model = fmt.Sprintf("kind: mlp, hidden: [%d]", l.hidden)
	}
	held := p.Write(t, "held-out.csv", testkit.NoisyPlane(500, 99))
	p.ConfigureCoordinator(t, fmt.Sprintf(task, model), list.String(), fmt.Sprintf(
		`{participants: %d, quorum: %d, rounds: 0, deadline: %s, invite_every: 1s, gather: {target: %d, minimum: %d, within: 2s, spread: 10ms}%s}`,
		all, l.quorum, l.deadline, all, l.quorum, l.round), "held_out: {csv: "+held+"}", "policy: {keep_models: 0}")
	return p
}

// start starts the coordinator and all agents.
func (p *plant) start() {
	p.t.Helper()
	p.startLead()
	for _, id := range p.ids {
		p.startAgent(id)
	}
}

func (p *plant) startLead(more ...string) {
	p.t.Helper()
	p.lead = p.Daemon(p.t, "coordinator",
		"coordinator", append([]string{"--set", "metrics.listen=127.0.0.1:0"}, more...)...)
	p.url = regexp.MustCompile(`url=(\S+)`).FindStringSubmatch(p.lead.Await(p.t, "serving metrics"))[1]
}

func (p *plant) startAgent(id string) {
	p.t.Helper()
	p.agents[id] = p.Daemon(p.t, "agentd", id, p.extra[id]...)
}

// stop stops all programs with the signal that systemd uses.
func (p *plant) stop() {
	p.t.Helper()
	for _, id := range p.ids {
		p.agents[id].Stop(p.t, syscall.SIGTERM, 0)
	}
	p.lead.Stop(p.t, syscall.SIGTERM, 0)
}

// lie starts the device that sends false data, with additional command-line arguments.
func (p *plant) lie(how ...string) *testkit.Process {
	p.t.Helper()
	fleet := []string{"fleet", "--agents", "1", "--config", p.Path("liar.yaml"),
		"--set", "metrics.listen=127.0.0.1:0"}
	return p.Start(p.t, "fedlab", append(fleet, how...)...)
}

// line is one line of history.jsonl, the coordinator's record of rounds.
type line struct {
	Run      uint64
	Round    uint64
	Kind     string
	Outcome  string
	Version  uint64
	Accepted int
	Seconds  float64
	Risk     *float64
	R2       *float64
}

// history returns the lines of the current run.
func (p *plant) history() (lines []line) {
	p.t.Helper()
	data, err := os.ReadFile(p.Path("state/history.jsonl"))
	if err != nil {
		return nil
	}
	for text := range bytes.Lines(data[:bytes.LastIndexByte(data, '\n')+1]) {
		var l line
		if json.Unmarshal(text, &l) != nil {
			continue // The test has damaged this line.
		}
		if len(lines) > 0 && lines[0].Run != l.Run {
			lines = nil
		}
		lines = append(lines, l)
	}
	return lines
}

// version returns the version of the newest model in the history.
func (p *plant) version() uint64 {
	for _, l := range slices.Backward(p.history()) {
		if l.Kind == "training" && l.Outcome != "abandoned" {
			return l.Version
		}
	}
	return 0
}

// r2 returns the coefficient of determination (R²) of the newest model on the held-out rows.
func (p *plant) r2() float64 {
	for _, l := range slices.Backward(p.history()) {
		if l.R2 != nil {
			return *l.R2
		}
	}
	return 0
}

// abandoned returns the number of abandoned rounds.
func (p *plant) abandoned() (n int) {
	for _, l := range p.history() {
		if l.Outcome == "abandoned" {
			n++
		}
	}
	return n
}

// await waits until the newest model has at least the given version, and returns the waiting time.
func (p *plant) await(version uint64, long time.Duration) time.Duration {
	p.t.Helper()
	began := time.Now()
	p.within(long, fmt.Sprintf("version %d (it is %d)", version, p.version()),
		func() bool { return p.version() >= version })
	return time.Since(began)
}

// goOn waits until the coordinator has produced n more models.
func (p *plant) goOn(n int, long time.Duration) time.Duration {
	p.t.Helper()
	return p.await(p.version()+uint64(n), long)
}

// within waits for a condition and fails the test after the timeout.
func (p *plant) within(long time.Duration, what string, ok func() bool) {
	p.t.Helper()
	if err := launch.Until(p.t.Context(), long, ok); err != nil {
		p.t.Fatalf("not after %s: %s\nstatus:\n%s", long, what, p.status())
	}
}

func (p *plant) status() string {
	_, out, errs := p.Run(p.t, "coordinator", "status", "--config", p.Path("coordinator.yaml"))
	return out + errs
}

// pause waits for a duration that is part of the fault, such as the downtime of the broker.
func pause(d time.Duration) { <-time.After(d) }

// between returns a random duration between least and most.
func (p *plant) between(least, most time.Duration) time.Duration {
	return least + time.Duration(p.rng.Int64N(int64(most-least)))
}

// answers returns the HTTP status code of a page that the coordinator serves.
func (p *plant) answers(page string) int {
	r, err := http.Get(strings.TrimSuffix(p.url, "/metrics") + page)
	if err != nil {
		return 0
	}
	defer r.Body.Close()
	_, _ = io.Copy(io.Discard, r.Body)
	return r.StatusCode
}

// model returns the hash of the model with the given version, as listed by the coordinator.
func (p *plant) model(version uint64) string {
	p.t.Helper()
	file := p.Path(fmt.Sprintf("model-%d.safetensors", version))
	p.MustRun(p.t, "coordinator", "model", "export", fmt.Sprint(version), "--state-dir", p.Path("state"), "--out", file)
	data, err := os.ReadFile(file)
	if err != nil {
		p.t.Fatal(err)
	}
	return tensors(p.t, data)
}

// models returns the number of model files of all runs.
func (p *plant) models() int {
	files, err := filepath.Glob(p.Path("state/models/*/model-*.safetensors*"))
	if err != nil {
		p.t.Fatal(err)
	}
	return len(files)
}
