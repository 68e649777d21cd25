package e2e

import (
	"fmt"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// Numbers of agents: the agents that run, and the agents in the coordinator's list. The other listed agents never
// connect.
const (
	crowdThere  = 12
	crowdListed = 4 * crowdThere
)

// crowdRound configures rounds that invite only a fraction of the agents to respond. An agent that is not invited
// leaves the broker after it has completed the self-test, which starts within one minute of its start.
const crowdRound = `{participants: 3, quorum: 2, deadline: 20s, pause: 200ms, gather: {minimum: 3, within: 1s,
  spread: 200ms, respond: {target: 4, return_after: 500ms, return_within: 1s, presence: round}}}`

// crowd is a federation in which some agents respond to each round, while the other agents leave the broker for a
// while.
type crowd struct {
	*federation
	ids    []string
	agents map[string]*guest
	lead   *testkit.Process
	led    string // URL of the coordinator's metrics
	seen   *rounds
	heard  *heard
}

// guest is the state of an agent at the time when the test first detected that the agent had left and returned.
type guest struct {
	*testkit.Process
	url      string
	back     bool
	accepted float64
	again    bool // true if an update was accepted after the agent had reconnected
}

// heard holds the observations at the broker: the fraction of agents that the coordinator invited in each gathering
// phase, and the number of connected clients.
type heard struct {
	mu     sync.Mutex
	shares []float64
	fewest int // smallest number of connected clients so far
}

// from returns the invited fractions, starting with index n.
func (h *heard) from(n int) []float64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.shares[n:])
}

// fewestFrom resets the minimum that fewestClients returns, so that it covers only the time from now on.
func (h *heard) fewestFrom() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fewest = math.MaxInt
}

func (h *heard) fewestClients() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.fewest
}

func (h *heard) take(t *testing.T, m mqtt.Message) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if strings.HasPrefix(m.Topic, "$SYS/") {
		n, err := strconv.Atoi(string(m.Payload))
		if err != nil {
			t.Errorf("the broker has %q clients", m.Payload)
		}
		h.fewest = min(h.fewest, n)
		return
	}
	e, err := wire.ParseEnvelope(m.Payload)
	ann, bad := wire.DecodeAnnouncement(e.Body)
	if err != nil || bad != nil {
		t.Error(err, bad)
	} else if r := &ann.ResponsePolicy; ann.Phase == wire.PhaseGathering {
		share := (&round.ResponseLottery{AnswerThreshold: r.AnswerProbability}).AnswerProbability()
		h.shares = append(h.shares, share)
	}
}

var servedAt = regexp.MustCompile(`url=(\S+)`)

// servesMetrics are command-line options for a process whose metrics are read by a test.
var servesMetrics = []string{"--set", "metrics.listen=127.0.0.1:0"}

func newCrowd(t *testing.T, broker string) *crowd {
	t.Helper()
	c := &crowd{federation: newFederation(t, broker), agents: map[string]*guest{}}
	var list strings.Builder
	for i := range crowdThere {
		id := fmt.Sprintf("s%02d", i)
		list.WriteString(c.AddAgent(t, id, plane(60)))
		c.ids = append(c.ids, id)
	}
	for i := range crowdListed - crowdThere {
		id := fmt.Sprintf("never%02d", i)
		list.WriteString(id + " " + c.MustRun(t, "agentd", "key", "new", c.Path(id+".key")))
	}
	c.federation.lead(t, list.String(), crowdRound)
	c.seen, c.heard = &rounds{dir: c.Path("state")}, hear(t, broker)
	for _, id := range c.ids {
		p := c.Daemon(t, "agentd", id, servesMetrics...)
		c.agents[id] = &guest{Process: p}
	}
	for _, g := range c.agents {
		g.url = servedAt.FindStringSubmatch(g.Await(t, "serving metrics"))[1]
	}
	c.start(t)
	return c
}

func (c *crowd) start(t *testing.T) {
	t.Helper()
	c.lead = c.Daemon(t, "coordinator", "coordinator", servesMetrics...)
	c.led = servedAt.FindStringSubmatch(c.lead.Await(t, "serving metrics"))[1]
}

// hear observes a broker until the end of the test.
func hear(t *testing.T, broker string) *heard {
	t.Helper()
	conn, err := mqtt.Dial(t.Context(), mqtt.Options{URL: broker, ClientID: "observer"})
	if err != nil {
		t.Fatal(err)
	}
	conn.Subscribe(mqtt.AtMostOnce, "fl/v1/e2e/round", "$SYS/broker/clients/connected")
	h, ended := &heard{}, make(chan struct{})
	go func() {
		defer close(ended)
		for e := range conn.Events() {
			if m, is := e.(mqtt.MessageReceived); is && len(m.Payload) > 0 {
				h.take(t, m.Message)
			}
		}
	}()
	t.Cleanup(func() {
		_ = conn.Close()
		<-ended
	})
	return h
}

// returned returns the number of agents that have left the broker, returned, and then participated in a round.
func (c *crowd) returned(t *testing.T) (n int) {
	for _, g := range c.agents {
		accepted := testkit.ScrapeMetric(t, g.url, `agentd_updates_settled_total{fate="folded"}`)
		switch {
		case !g.back && testkit.ScrapeMetric(t, g.url, "agentd_broker_reconnects_total") > 0:
			g.back, g.accepted = true, accepted
		case g.back && accepted > g.accepted:
			g.again = true
		}
		if g.again {
			n++
		}
	}
	return n
}

// goesOn checks that the rounds and the model versions in the history are consecutive.
func goesOn(t *testing.T, all []runs.HistoryEntry) {
	t.Helper()
	for i := 1; i < len(all); i++ {
		was, is := all[i-1], all[i]
		more := wire.ModelVersion(0)
		if is.Outcome == "closed" && is.Kind == "training" {
			more = 1
		}
		if is.Round != was.Round+1 || is.Version != was.Version+more {
			t.Errorf("round %d of version %d (%s) after round %d of version %d", is.Round, is.Version, is.Outcome,
				was.Round, was.Version)
		}
	}
}

// openCrowd returns a crowd on a Mosquitto that publishes the number of its clients every second.
func openCrowd(t *testing.T) *crowd {
	t.Helper()
	return newCrowd(t, brokers.OpenMosquitto(t, "sys_interval 1"))
}

// TestSomeRespond checks with the method respond that one agent leaves the broker, returns, and participates in a
// round.
func TestSomeRespond(t *testing.T) {
	t.Parallel()
	openCrowd(t).respond(t, 1)
}

// respond waits until the given number of agents have left the broker, returned, and participated in a round. Meanwhile
// it kills the coordinator, which must keep its estimate of the number of agents after the restart. An agent that is
// away from the broker must be healthy. Stopped agents must leave no retained presence message.
func (c *crowd) respond(t *testing.T, many int) {
	testkit.Until(t, "5 rounds", func() bool { return c.seen.last().Round >= 5 })
	c.lead.Kill()
	before := len(c.heard.from(0))
	c.start(t)
	testkit.UntilFor(t, time.Duration(many)*testkit.Patience,
		fmt.Sprintf("%d agents have left, come back and taken part", many),
		func() bool { return c.returned(t) >= many })
	c.heard.fewestFrom()
	testkit.Until(t, "the broker has fewer clients", func() bool {
		return c.heard.fewestClients() <= crowdThere+2-max(1, many/2)
	})
	c.checkEstimate(t, before)
	c.checkAway(t)
	c.lead.Stop(t, syscall.SIGTERM, 0)
	c.seen.last()
	goesOn(t, c.seen.all)
	for _, g := range c.agents {
		g.Stop(t, syscall.SIGTERM, 0)
	}
	if kept := brokers.Retained(t, strings.TrimPrefix(c.Broker, "tcp://"), c.Name, "p/+"); len(kept) > 0 {
		t.Errorf("after all have left the broker keeps %v", kept)
	}
}

// checkEstimate checks that the coordinator estimates the number of running agents correctly, although its list
// contains more agents. A restarted coordinator must keep this estimate.
func (c *crowd) checkEstimate(t *testing.T, before int) {
	t.Helper()
	const wanted = 1.3 * 4
	all := c.heard.from(0)
	if first := wanted / crowdListed; math.Abs(all[0]-first) > 1e-6 {
		t.Errorf("at first %g of the agents are asked, want %g: by those listed", all[0], first)
	}
	if again := slices.Min(all[before:]); again < 1.25*all[0] {
		t.Errorf("after a kill %g of the agents are asked: it forgot how many there are", again)
	}
	slices.Sort(all)
	usual := wanted / all[len(all)/2]
	now := testkit.ScrapeMetric(t, c.led, "coordinator_agents_estimated")
	t.Logf("%d rounds, %d gatherings; %.3g agents estimated as a rule and %.3g at last, of %d",
		c.seen.last().Round, len(all), usual, now, crowdThere)
	if usual < crowdThere/4 || usual > crowdThere*3/2 || now < 1 || now > crowdListed {
		t.Errorf("%g agents are estimated, and %g in the metrics: want about %d", usual, now, crowdThere)
	}
}

// checkAway finds an agent that is away from the broker, and checks the agent's status, doctor and readiness.
func (c *crowd) checkAway(t *testing.T) {
	t.Helper()
	var id string
	testkit.Until(t, "an agent says that it is away", func() bool {
		for i, g := range c.agents {
			if g.back && strings.Contains(c.MustRun(t, "agentd", "status", "--config", c.Path(i+".yaml")),
				"disconnected on purpose for ") {
				id = i
				return true
			}
		}
		return false
	})
	if code, out, _ := c.Run(t, "agentd", "doctor", "--config", c.Path(id+".yaml")); code != 0 {
		t.Errorf("doctor of an agent that leaves by plan:\n%s", out)
	}
	r, err := http.Get(strings.Replace(c.agents[id].url, "/metrics", "/-/ready", 1))
	if err != nil {
		t.Fatal(err)
	}
	if r.Body.Close(); r.StatusCode != http.StatusOK {
		t.Errorf("it is not ready: %s", r.Status)
	}
}
