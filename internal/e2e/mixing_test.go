package e2e

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
	"github.com/fedmesh/fedmesh/mqtt"
	shipped "github.com/fedmesh/fedmesh/packaging/mosquitto"
)

// feddec is the task of four agents that mix (average their parameters with neighbours) after every local step.
const feddec = `{name: plane, features: [a, b], target: y, step_size: {constant: 0.02, normalize: false}, steps: {budget: 1s, min: 1, max: 10},
  mixing: {wait: 300ms, repeat: 100ms, drain: 2s}}`

// sites lists the kinds of brokers for a site. Each broker uses our access rules for the agents of the federation.
var sites = []struct {
	name string
	open func(t *testing.T, f *federation, ids []string) (address string)
}{
	{"mosquitto", func(t *testing.T, f *federation, ids []string) string {
		m := brokers.NewMosquitto(t, shipped.PlainConf)
		m.Write(t, "acl", []byte(programs.MustRun(t, "coordinator", "acl", "--config", f.Path("coordinator.yaml"))))
		var users []string
		for _, id := range ids {
			users = append(users, "e2e-"+id)
		}
		m.AddUsers(t, users...)
		m.Start(t)
		return m.Address
	}},
	{"embedded", func(t *testing.T, _ *federation, _ []string) string {
		e := brokers.NewEmbedded(t, "nobody", 100, 0)
		e.Start(t)
		return e.Address
	}},
}

// mixingFederation writes the files of four agents that mix their parameters over the broker of their site.
func mixingFederation(t *testing.T, uplink, task, round, mesh, d2d string,
	open func(*testing.T, *federation, []string) string) (f *federation, ids []string) {
	t.Helper()
	f = newFederation(t, uplink)
	ids = []string{"four", "one", "three", "two"}
	var list strings.Builder
	for i, id := range ids {
		list.WriteString(f.AddAgent(t, id, plane(60+7*i)))
	}
	f.ConfigureCoordinator(t, task, list.String(), round)
	f.add(t, "coordinator", "mesh: "+mesh)
	address := open(t, f, ids)
	for _, id := range ids {
		f.add(t, id, fmt.Sprintf("d2d: {broker: {url: tcp://%s, username: e2e-%s, password: password of e2e-%s}, %s}",
			address, id, id, d2d))
	}
	return f, ids
}

// add appends a line to a configuration file.
func (f *federation) add(t *testing.T, name, line string) {
	t.Helper()
	text, err := os.ReadFile(f.Path(name + ".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	f.Write(t, name+".yaml", string(text)+line+"\n")
}

// TestDiscovery checks that agents discover each other at the broker of their site. The access rules of the broker
// allow each agent to write only its own beacon.
func TestDiscovery(t *testing.T) {
	t.Parallel()
	for _, site := range sites {
		t.Run(site.name, func(t *testing.T) {
			f, ids := mixingFederation(t, brokers.OpenMosquitto(t), feddec,
				`{algorithm: feddec, sampling: with_replacement, participants: 2, quorum: 1, rounds: 0,
  deadline: 20s, pause: 1s, gather: {minimum: 4, within: 5s, spread: 100ms}}`, `{edges: discovered}`, "cell: hall, max_degree: 2", site.open)
			daemons := []*testkit.Process{f.Daemon(t, "coordinator", "coordinator")}
			daemons = append(daemons, f.Agents(t, ids)...)
			for _, p := range daemons[1:] {
				if line := p.Await(t, "neighbours found"); !strings.Contains(line, "agents_in_cell=3") {
					t.Error(line)
				}
			}
			line := daemons[0].Await(t, "agents=4 edges=4")
			if !strings.Contains(line, "mixing graph computed") {
				t.Error(line)
			}
			daemons[1].Await(t, "flows=20")
			slices.Reverse(daemons)
			testkit.StopAll(t, daemons...)
		})
	}
}

// endless is the task feddec, but the agents never replace their parameters by the server's average.
var endless = strings.Replace(feddec, "{wait:", "{server_every: 0, wait:", 1)

// TestWithoutUplink checks that agents continue to mix while the coordinator's broker is down. A killed agent must
// catch up with its neighbours after its restart. When the broker is back, the coordinator must continue to average.
func TestWithoutUplink(t *testing.T) {
	t.Parallel()
	uplink := brokers.NewMosquitto(t, []byte(brokers.AnonymousListenerConf))
	uplink.Start(t)
	var site string
	f, ids := mixingFederation(t, "tcp://"+uplink.Address, endless,
		`{algorithm: feddec, sampling: with_replacement, participants: 2, quorum: 1, rounds: 0,
  deadline: 20s, pause: 500ms, gather: {target: 4, minimum: 4, within: 20s, spread: 10ms}}`, `{edges: complete}`, "place: {x: 1, y: 2}",
		func(t *testing.T, _ *federation, _ []string) string {
			m := brokers.NewMosquitto(t, []byte(brokers.AnonymousListenerConf))
			m.Start(t)
			site = "tcp://" + m.Address
			return m.Address
		})
	lead := f.Daemon(t, "coordinator", "coordinator")
	agents := map[string]*testkit.Process{}
	for _, id := range ids {
		agents[id] = f.Daemon(t, "agentd", id)
	}
	for _, p := range agents {
		p.Await(t, "starts_from=model")
	}
	lead.Await(t, "model ready version=2")
	uplink.Kill()
	lead.Await(t, "lost the connection to the broker")

	observer, err := mqtt.Dial(t.Context(), mqtt.Options{URL: site, ClientID: "observer"})
	if err != nil {
		t.Fatal(err)
	}
	defer observer.Close()
	hear := func(id string) {
		t.Helper()
		late := time.After(testkit.Patience)
		topic := "fl/v1/e2e/x/e2e-" + id + "/"
		for {
			select {
			case e := <-observer.Events():
				if m, ok := e.(mqtt.MessageReceived); ok && strings.HasPrefix(m.Topic, topic) &&
					strings.HasSuffix(m.Topic, "/1") {
					return
				}
			case <-late:
				t.Fatalf("%s mixes no longer", id)
			}
		}
	}
	observer.Subscribe(mqtt.AtMostOnce, "fl/v1/e2e/x/#")
	for _, id := range ids {
		hear(id)
	}
	killed := agents["one"]
	killed.Stop(t, syscall.SIGKILL, -1)
	agents["one"] = f.Daemon(t, "agentd", "one")
	agents["one"].Await(t, "starts_from=neighbour")
	for _, id := range ids {
		hear(id)
	}

	before := strings.Count(lead.Log(), "model ready")
	uplink.Start(t)
	lead.Await(t, fmt.Sprintf("model ready version=%d", before+2))
	for _, p := range append(slices.Collect(maps.Values(agents)), lead) {
		p.Stop(t, syscall.SIGTERM, 0)
	}
}
