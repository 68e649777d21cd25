package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
)

// cluster is a federation with several coordinators.
type cluster struct {
	*federation
	names    []string
	replicas map[string]*testkit.Process
	agents   map[string]*testkit.Process
}

// newCluster starts three agents, and three coordinators that share a NATS store.
func newCluster(t *testing.T, broker string, engine *brokers.NATS, round string,
	change ...func(name, text string) string) *cluster {
	t.Helper()
	c := layOutCluster(t, broker, engine, round, change...)
	c.startAll(t)
	return c
}

// layOutCluster writes the configuration files of a cluster. The function change modifies the configuration of a
// coordinator.
func layOutCluster(t *testing.T, broker string, engine *brokers.NATS, round string,
	change ...func(name, text string) string) *cluster {
	t.Helper()
	c := &cluster{newFederation(t, broker), []string{"c1", "c2", "c3"}, map[string]*testkit.Process{},
		map[string]*testkit.Process{}}
	ids := []string{"one", "two", "three"}
	list := c.AddAgents(t, plane(60), ids...)
	var urls []string
	for _, node := range engine.Nodes {
		urls = append(urls, `"nats://`+node.Client+`"`)
	}
	for _, name := range c.names {
		c.Write(t, name+".keys", list)
		own := c.CoordinatorText(name,
			"{name: plane, features: [a, b], target: y, steps: {budget: 1s, min: 5, max: 5}}", round,
			fmt.Sprintf("cluster: {nats: [%s], name: %s, copies: %d}", strings.Join(urls, ", "), name,
				len(engine.Nodes)))
		for _, f := range change {
			own = f(name, own)
		}
		c.Write(t, name+".yaml", own)
	}
	return c
}

func (c *cluster) startAll(t *testing.T) {
	t.Helper()
	for _, name := range c.names {
		c.start(t, name)
	}
	for _, id := range []string{"one", "two", "three"} {
		c.agents[id] = c.Daemon(t, "agentd", id)
	}
}

func (c *cluster) start(t *testing.T, name string) {
	t.Helper()
	c.replicas[name] = c.Daemon(t, "coordinator", name)
}

// leader waits until one of the given replicas leads, and returns its name. The replicas must not have led before.
func (c *cluster) leader(t *testing.T, among ...string) string {
	t.Helper()
	leads := ""
	testkit.Until(t, "a coordinator leads", func() bool {
		for _, name := range among {
			if strings.Contains(c.replicas[name].Log(), "this coordinator is now the leader") {
				leads = name
			}
		}
		return leads != ""
	})
	return leads
}

func (c *cluster) but(names ...string) (rest []string) {
	for _, name := range c.names {
		if !strings.Contains(" "+strings.Join(names, " ")+" ", " "+name+" ") {
			rest = append(rest, name)
		}
	}
	return rest
}

// history returns the history from a replica's state folder. history checks that the rounds are consecutive and closed.
func (c *cluster) history(t *testing.T, name string) (lines []runs.HistoryEntry) {
	t.Helper()
	for h, err := range runs.ReadHistory(c.Path("state-" + name)) {
		if err != nil {
			t.Error(err)
			continue
		}
		if n := len(lines); n > 0 && h.Round != lines[n-1].Round+1 || h.Outcome != "closed" {
			t.Errorf("history of %s, line %d: round %d, %s", name, n+1, h.Round, h.Outcome)
		}
		lines = append(lines, h)
	}
	return lines
}

// awaitRounds waits until the history of a replica contains n rounds. It does not read the log, because the log omits
// some rounds.
func (c *cluster) awaitRounds(t *testing.T, name string, n int) {
	t.Helper()
	testkit.Until(t, fmt.Sprintf("%s has %d rounds", name, n), func() bool { return c.rounds(name) >= n })
}

// rounds returns the number of complete lines in a replica's history.
func (c *cluster) rounds(name string) int {
	text, _ := os.ReadFile(filepath.Join(c.Path("state-"+name), "history.jsonl"))
	return bytes.Count(text, []byte("\n"))
}

// models returns the hashes of each model version in the replicas' state folders.
func (c *cluster) models(t *testing.T) (all map[string][][]byte) {
	t.Helper()
	all = map[string][][]byte{}
	for _, name := range c.names {
		files, err := filepath.Glob(filepath.Join(c.Path("state-"+name), "models", "*", "*.record"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range files {
			hash, err := os.ReadFile(path)
			if errors.Is(err, fs.ErrNotExist) {
				continue // the old model was removed in the meantime
			} else if err != nil {
				t.Fatal(err)
			}
			version := filepath.Join(filepath.Base(filepath.Dir(path)), filepath.Base(path))
			all[version] = append(all[version], hash)
		}
	}
	return all
}

// awaitCopy waits until two replicas have a model of the same version.
func (c *cluster) awaitCopy(t *testing.T) {
	t.Helper()
	testkit.Until(t, "two coordinators have the same version", func() bool {
		for _, hashes := range c.models(t) {
			if len(hashes) > 1 {
				return true
			}
		}
		return false
	})
}

// wantOneModel checks that replicas with the same model version have the same model. At least two replicas must share a
// version.
func (c *cluster) wantOneModel(t *testing.T) {
	t.Helper()
	compared := 0
	for version, hashes := range c.models(t) {
		for _, hash := range hashes[1:] {
			if compared++; !bytes.Equal(hash, hashes[0]) {
				t.Errorf("two models are %s", version)
			}
		}
	}
	if compared == 0 {
		t.Error("no two coordinators have the same version: nothing was compared")
	}
}

var trained = regexp.MustCompile(`local training finished agent=\w+ round=(\d+)`)

// wantOneTraining checks that no agent has trained twice for one round.
func (c *cluster) wantOneTraining(t *testing.T) {
	t.Helper()
	for id, p := range c.agents {
		rounds := map[string]int{}
		for _, m := range trained.FindAllStringSubmatch(p.Log(), -1) {
			if rounds[m[1]]++; rounds[m[1]] > 1 {
				t.Errorf("agent %s has trained for round %s twice", id, m[1])
			}
		}
		if len(rounds) == 0 {
			t.Errorf("agent %s has trained for no round:\n%s", id, p.Log())
		}
	}
}

// TestCoordinators runs three coordinators. It kills the leader and then stops the next leader. The third coordinator
// must continue the same run.
func TestCoordinators(t *testing.T) {
	t.Parallel()
	engine := brokers.NewNATS(t, 1, 0, "")
	engine.Start(t)
	c := newCluster(t, brokers.OpenMosquitto(t), engine, `{participants: 3, quorum: 3, rounds: 0, pause: 200ms, `+
		`deadline: 60s, gather: {target: 3, minimum: 3, within: 30s, spread: 10ms}}`)
	first := c.leader(t, c.names...)
	for _, name := range c.but(first) {
		c.replicas[name].Await(t, "on standby leader="+first)
	}
	standby := c.but(first)[0]
	if code, _, stderr := programs.Run(t, "coordinator", "status", "--config", c.Path(standby+".yaml")); code == 0 ||
		!strings.Contains(stderr, "this coordinator is on standby; run the command on the leader "+first) {
		t.Errorf("status of who is on standby; exit %d, %s", code, stderr)
	}
	if code, stdout, _ := programs.Run(t, "coordinator", "doctor", "--config", c.Path(standby+".yaml")); code != 0 ||
		!strings.Contains(stdout, "the leader is "+first) {
		t.Errorf("the doctor of who is on standby; exit %d, %s", code, stdout)
	}
	c.awaitRounds(t, first, 4)
	c.replicas[first].Kill()
	killed := time.Now()
	second := c.leader(t, c.but(first)...)
	c.replicas[second].Await(t, "round opened")
	t.Logf("%s leads %.1f s after %s was killed", second, time.Since(killed).Seconds(), first)
	before := c.history(t, second)
	c.awaitRounds(t, second, len(before)+2)
	c.start(t, first)
	c.replicas[first].Await(t, "on standby leader="+second)
	c.replicas[second].Stop(t, syscall.SIGTERM, 0)
	third := c.leader(t, c.but(second)...)
	before = c.history(t, third)
	c.awaitRounds(t, third, len(before)+2)
	for _, id := range []string{"one", "two", "three"} {
		c.agents[id].Stop(t, syscall.SIGTERM, 0)
	}
	for _, name := range c.but(second) {
		c.replicas[name].Stop(t, syscall.SIGTERM, 0)
	}
	if n := len(c.history(t, third)); n <= len(before) {
		t.Errorf("the history has %d rounds, had %d before", n, len(before))
	}
	c.wantOneModel(t)
	c.wantOneTraining(t)
}
