package main

import (
	"crypto/ed25519"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/internal/clitest"
	"github.com/fedmesh/fedmesh/internal/coordinatord/agentlist"
	"github.com/fedmesh/fedmesh/internal/keys"
	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/lab/liar"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/round/agentround"
)

func TestFleetFlags(t *testing.T) {
	for args, want := range map[string]string{
		"--slow 0.3":     `invalid argument "0.3" for "--slow" flag: specify FRACTION:FACTOR with FRACTION from 0 to 1`,
		"--slow 1.5:2":   `invalid argument "1.5:2"`,
		"--slow 0.3:0.5": `invalid argument "0.3:0.5"`,
		"--slow NaN:2":   `invalid argument "NaN:2"`,
		"--lie 2:nan":    `invalid argument "2:nan" for "--lie" flag: specify FRACTION:LIE with FRACTION from 0 to 1`,
		"--lie 1:truth": "unknown lie, want one of constant:1, labelflip, max, mix 1e30, mix 5, mix flip, moments, " +
			"nan, " +
			`noise:1, rows, signflip:10; got "truth"`,
		"--agents 0":  "--agents must be at least 1, but is 0",
		"--shares -1": "--shares must be at least 1, or 0 for one part per agent, but is -1",
		"--drop 1.5":  "--drop must be a probability from 0 to 1, but is 1.5",
		"--late NaN":  "--late must be a probability from 0 to 1, but is NaN",
		"now":         `unknown command "now" for "fedlab fleet"`,
	} {
		code, _, stderr := clitest.Run(rootCommand(), append([]string{"fleet"}, strings.Fields(args)...)...)
		if code != 2 || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit %d, %s\nwant exit 2 and %s", args, code, stderr, want)
		}
	}
}

func TestSlowness(t *testing.T) {
	var s slowAgentsFlag
	if s.String() != "" {
		t.Errorf("unset it is %q, which the help shows as a default", s.String())
	}
	if err := s.Set("0.3:10"); err != nil || s != (slowAgentsFlag{0.3, 10}) || s.String() != "0.3:10" {
		t.Errorf("%v, error %v", s, err)
	}
}

func TestFalsehood(t *testing.T) {
	var l lyingAgentsFlag
	if l.String() != "" {
		t.Errorf("unset it is %q, which the help shows as a default", l.String())
	}
	if err := l.Set("0.25:nan"); err != nil || l.String() != "0.25:nan" {
		t.Errorf("%v, error %v", &l, err)
	}
	f, lie := fleet{agents: 8, seed: 1, lyingAgents: l}, 0
	for i := range f.agents {
		if _, lies := f.trainer(i, new(settings.Agent)).(liar.Trainer); lies {
			lie++
		}
	}
	if lie != 2 {
		t.Errorf("%d of 8 agents lie, want 2", lie)
	}
}

// TestMembers checks that exactly the given fraction of the agents is slow, and that the rows of the data are
// distributed among all agents.
func TestMembers(t *testing.T) {
	base := settings.DefaultAgent()
	base.ID, base.StateDir = "dev", "state"
	f := fleet{agents: 10, seed: 1, slow: slowAgentsFlag{0.3, 10}}
	slow, ids := 0, map[string]bool{}
	for i, one := range f.members(&base) {
		ids[one.ID] = true
		if one.StateDir != filepath.Join("state", one.ID) || one.Data.ShareIndex != i || one.Data.ShareCount != 10 {
			t.Errorf("agent %d is %+v", i, one)
		}
		switch one.Compute.DeclaredStepTime {
		case 10 * time.Millisecond:
			slow++
		case 0: // the speed of this agent is measured instead of declared
		default:
			t.Errorf("agent %d takes %v per step", i, one.Compute.DeclaredStepTime)
		}
	}
	if slow != 3 || len(ids) != 10 {
		t.Errorf("%d of %d agents are slow, want 3 of 10", slow, len(ids))
	}
	base.Compute.DeclaredStepTime = 2 * time.Millisecond
	f = fleet{agents: 4, dataShares: 2, slow: slowAgentsFlag{1, 3}}
	for i, one := range f.members(&base) {
		if one.Compute.DeclaredStepTime != 6*time.Millisecond || one.Data.ShareIndex != i%2 ||
			one.Data.ShareCount != 2 {
			t.Errorf("agent %d is %+v", i, one)
		}
	}
	if base.Data.ShareCount != 0 {
		t.Error("the agents share their settings with the fleet's")
	}
}

// outbox is a connection that records the topics of the messages published over it.
type outbox struct {
	mqtt.Conn
	mu     sync.Mutex
	topics []string
}

func (o *outbox) Publish(m mqtt.Message) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.topics = append(o.topics, m.Topic)
	return nil
}

// take returns the topics of the messages published since the previous call.
func (o *outbox) take() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	topics := o.topics
	o.topics = nil
	return topics
}

// TestMischief checks that agents disappear for a round, or send their update a second after the deadline, each with
// the given probability and independently of each other.
func TestMischief(t *testing.T) { synctest.Test(t, testMischief) }

func testMischief(t *testing.T) {
	topics, err := mqtt.NewTopics("", "plant")
	if err != nil {
		t.Fatal(err)
	}
	const rounds = 2000
	fates := func(f fleet, i int) (story string) {
		m, out := f.newFaultInjector(i, topics), &outbox{}
		conn := m.wrap(out)
		say := func(topic string) (passed bool) {
			if err := conn.Publish(mqtt.Message{Topic: topic}); err != nil {
				t.Fatal(err)
			}
			return slices.Equal(out.take(), []string{topic})
		}
		update := topics.UpdatePart("dev", "0", mqtt.ManifestPartName)
		for range rounds {
			m.Observe(agentround.WorkStarted{TimeLeft: time.Minute})
			there := say(topics.AgentToCoordinator("dev"))
			<-time.After(20 * time.Second)
			first, again := say(update), say(update)
			if passed := say(topics.Presence("dev")); !passed {
				t.Fatal("presence is held back")
			}
			<-time.After(40*time.Second + faultEndDelay/2)
			if early := out.take(); len(early) > 0 {
				t.Fatalf("%q at the deadline", early)
			}
			<-time.After(faultEndDelay)
			synctest.Wait()
			late := out.take()
			switch {
			case there && first && again && len(late) == 0:
				story += "."
			case there && !first && !again && slices.Equal(late, []string{update}):
				story += "L"
			case !there && !first && !again && len(late) == 0:
				story += "D"
			default:
				t.Fatalf("status passed: %v; update: %v, and again: %v; late: %q", there, first, again, late)
			}
			if !say(topics.AgentToCoordinator("dev")) || !say(update) {
				t.Fatal("the agent is not back")
			}
		}
		return story
	}
	if quiet := fates(fleet{seed: 1}, 0); quiet != strings.Repeat(".", rounds) {
		t.Errorf("in a fleet without faults: %s", quiet)
	}
	f := fleet{seed: 1, dropProbability: 0.3, lateProbability: 0.1}
	one := fates(f, 0)
	if d, l := strings.Count(one, "D"), strings.Count(one, "L"); d < 500 || d > 700 || l < 90 || l > 190 {
		t.Errorf("of %d rounds %d without the agent, in %d it is late; want about 600, and 140 of the others", rounds,
			d, l)
	}
	if fates(f, 0) != one {
		t.Error("one seed gives two stories")
	}
	if fates(f, 1) == one {
		t.Error("two agents vanish together")
	}
}

func TestListKeys(t *testing.T) {
	_, master, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	f := fleet{agents: 3, keyListPath: filepath.Join(t.TempDir(), "agents.keys")}
	base := settings.DefaultAgent()
	base.ID = "dev"
	if err := f.listKeys(&base, master); err != nil {
		t.Fatal(err)
	}
	all, err := agentlist.OpenCompiledList(f.keyListPath, filepath.Join(t.TempDir(), "agents"), time.Now())
	if err != nil || all.Len() != 3 {
		t.Fatalf("error %v; want 3 agents, each with a key of its own", err)
	}
	defer all.Close()
	got, err := all.Key("dev-2")
	if want := keys.Public(memberKey(master, "dev-2")); err != nil || !want.Equal(got) {
		t.Errorf("the list has another key for dev-2 than it would run with; error %v", err)
	}
}

// TestDraws checks that the random numbers depend only on the purpose and the seed.
func TestDraws(t *testing.T) {
	first := func(seed uint64, what string) uint64 { return (&fleet{seed: seed}).randFor(what).Uint64() }
	a := first(1, "a")
	if again := first(1, "a"); again != a {
		t.Errorf("one source begins with %d and with %d", a, again)
	}
	if b := first(1, "b"); b == a {
		t.Error("two purposes have one source")
	}
	if other := first(2, "a"); other == a {
		t.Error("two seeds have one source")
	}
}
