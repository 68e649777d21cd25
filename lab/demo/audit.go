package demo

import (
	"math"
	"math/rand/v2"
	"sync"

	"github.com/fedmesh/fedmesh/d2d"
	"github.com/fedmesh/fedmesh/lab/conservation"
	"github.com/fedmesh/fedmesh/wire"
)

// audit records the parameters of all agents after each mixing step. From them it computes the distance between the
// agents and checks that mixing keeps the mean of all parameters.
type audit struct {
	agents int
	kill   map[wire.AgentID]death

	mu        sync.Mutex
	open      map[moment]map[wire.AgentID][]float32
	consensus map[moment]float64 // sum Σ‖x_i − x̄‖² over the agents' parameters x_i, with mean x̄
	blocks    map[wire.RoundID][]endedBlock
	last      moment // newest local step that all agents have reported
}

// moment identifies a local step by its round and its number within the round, which starts at 1.
type moment struct {
	round wire.RoundID
	step  uint64
}

// death is a scheduled kill of an agent. The agent is killed at its first local step at or after the moment.
type death struct {
	moment
	kill func()
}

func newAudit(agents int) *audit {
	return &audit{
		agents: agents, kill: map[wire.AgentID]death{}, open: map[moment]map[wire.AgentID][]float32{},
		consensus: map[moment]float64{}, blocks: map[wire.RoundID][]endedBlock{},
	}
}

// scheduleKills schedules one kill for each of n randomly chosen agents. The kills are spread over the rounds and
// happen in the middle of a block.
func (a *audit) scheduleKills(ids []wire.AgentID, n, rounds int, steps uint64, seed uint64) {
	order := rand.New(rand.NewPCG(seed, 2)).Perm(len(ids))
	for i := range n {
		a.kill[ids[order[i]]] = death{moment: moment{wire.RoundID(1 + (i+1)*rounds/(n+1)), (steps + 1) / 2}}
	}
}

// onKill sets the function that kills agent id. It does nothing if no kill of this agent is scheduled.
func (a *audit) onKill(id wire.AgentID, kill func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if d, ok := a.kill[id]; ok {
		d.kill = kill
		a.kill[id] = d
	}
}

// mixed records a copy of an agent's parameters x after local step t and the mixing that follows it. If a kill of the
// agent is due, mixed kills the agent instead.
func (a *audit) mixed(id wire.AgentID, r wire.RoundID, t uint64, x []float32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if d, ok := a.kill[id]; ok && r >= d.round && t >= d.step {
		delete(a.kill, id)
		d.kill()
		return
	}
	at := moment{r, t}
	if a.open[at] == nil {
		a.open[at] = map[wire.AgentID][]float32{}
	}
	a.open[at][id] = append([]float32(nil), x...)
	if len(a.open[at]) == a.agents {
		a.last = at
		a.settle(at)
	}
}

// endedBlock contains the recorded sums and the mixing statistics of one agent's block.
type endedBlock struct {
	conservation.BlockSums
	stats d2d.MixingStats
}

// ended stores the result of a block that an agent has finished in round r.
func (a *audit) ended(r wire.RoundID, b endedBlock) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.blocks[r] = append(a.blocks[r], b)
}

// settle computes the consensus distance of one local step from the recorded parameters, and then discards these
// parameters.
func (a *audit) settle(at moment) {
	var mean []float64
	there := a.open[at]
	delete(a.open, at)
	for _, x := range there {
		if mean == nil {
			mean = make([]float64, len(x))
		}
		for j, v := range x {
			mean[j] += float64(v) / float64(len(there))
		}
	}
	sum := 0.0
	for _, x := range there {
		for j, v := range x {
			sum += (float64(v) - mean[j]) * (float64(v) - mean[j])
		}
	}
	a.consensus[at] = sum
}

// account contains the totals over all blocks of the run. account is computed after all agents have stopped.
type account struct {
	drift              float64 // largest value of conservation.Drift over all rounds
	flows, late, loose uint64
	health             map[[2]wire.AgentID]health // flow counts of each edge, by the ids of its two agents
}

// health counts the flows on one edge: expected, applied, and applied after their local step.
type health struct{ could, flows, late uint64 }

func (a *audit) account(steps uint64) (*account, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for at := range a.open { // Process the steps for which some agents recorded no parameters.
		a.settle(at)
	}
	c := &account{health: map[[2]wire.AgentID]health{}}
	for _, blocks := range a.blocks {
		var sums []conservation.BlockSums
		for _, b := range blocks {
			sums = append(sums, b.BlockSums)
		}
		drift, err := conservation.Drift(sums)
		if err != nil {
			return nil, err
		}
		c.drift = max(c.drift, drift)
		for _, b := range blocks {
			c.flows, c.late, c.loose = c.flows+b.stats.AppliedFlows, c.late+b.stats.LateFlows,
				c.loose+b.stats.UnreconciledEdges
			for _, e := range b.Edges {
				edge := [2]wire.AgentID{min(b.ID, e.ID), max(b.ID, e.ID)}
				h := c.health[edge]
				c.health[edge] = health{h.could + steps, h.flows + e.Flows, h.late + e.LateFlowCount}
			}
		}
	}
	return c, nil
}

// newest returns the consensus distance of the newest step that all agents have reported. newest returns NaN if no such
// step exists.
func (a *audit) newest() float64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.last == (moment{}) {
		return math.NaN()
	}
	return a.consensus[a.last]
}
