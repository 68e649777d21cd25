package demo

import (
	"math"
	"math/rand/v2"
	"sync"

	"github.com/fedmesh/fedmesh/d2d"
	"github.com/fedmesh/fedmesh/lab/conservation"
	"github.com/fedmesh/fedmesh/wire"
)

// audit sees all that the agents of a federation mix, and so can tell how far
// they are from each other at each step, and whether the mean was conserved.
type audit struct {
	agents int
	kill   map[wire.AgentID]death

	mu        sync.Mutex
	open      map[moment]map[wire.AgentID][]float32
	consensus map[moment]float64 // Σ‖x_i − x̄‖², over those that were there
	blocks    map[wire.RoundID][]endedBlock
	last      moment // the newest that all have reported
}

// moment is a local step of a round, from 1.
type moment struct {
	round wire.RoundID
	step  uint64
}

// death is the moment from which on an agent is killed, once, and how.
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

// scheduleKills chooses who is killed when: n agents, in rounds that are spread over the run, in the middle of a block.
func (a *audit) scheduleKills(ids []wire.AgentID, n, rounds int, steps uint64, seed uint64) {
	order := rand.New(rand.NewPCG(seed, 2)).Perm(len(ids))
	for i := range n {
		a.kill[ids[order[i]]] = death{moment: moment{wire.RoundID(1 + (i+1)*rounds/(n+1)), (steps + 1) / 2}}
	}
}

// onKill says what to do when an agent is to be killed.
func (a *audit) onKill(id wire.AgentID, kill func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if d, ok := a.kill[id]; ok {
		d.kill = kill
		a.kill[id] = d
	}
}

// mixed takes an agent's parameters after local step t and the mixing that follows it. It does not keep x.
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

// endedBlock is what one agent's block has come to.
type endedBlock struct {
	conservation.BlockSums
	stats d2d.MixingStats
}

// ended takes a block that has ended.
func (a *audit) ended(r wire.RoundID, b endedBlock) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.blocks[r] = append(a.blocks[r], b)
}

// settle computes the consensus distance of a moment.
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

// account is what the blocks of all rounds have come to, when all agents have ended.
type account struct {
	drift              float64 // the largest of a round
	flows, late, loose uint64
	health             map[[2]wire.AgentID]health // by edge
}

// health says how an edge fared: of the flows that could have been, how many were applied, and how many of these late.
type health struct{ could, flows, late uint64 }

func (a *audit) account(steps uint64) (*account, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for at := range a.open { // an agent was not there
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

// newest is the consensus distance of the last moment that all have reported.
func (a *audit) newest() float64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.last == (moment{}) {
		return math.NaN()
	}
	return a.consensus[a.last]
}
