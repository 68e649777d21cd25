package world

import (
	"math"
	"math/bits"

	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/modelfile"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// Each agent holds out the share heldShare of its rows for evaluation. An agent with fewer than leastHeld held-out rows
// sends no result. The first agent has one row too few.
const (
	heldShare = 0.2
	leastHeld = 5
)

// heldBy returns the held-out rows of agent k.
func (c *invariantChecker) heldBy(k int) *learner.Samples[float32] {
	if c.held[k] == nil {
		all, err := c.w.plan.rowsOf(k).load(nil, "")
		if err != nil {
			panic(err)
		}
		c.held[k] = all.SkipFirstSamples(all.Len() - int(heldShare*float64(all.Len())))
	}
	return c.held[k]
}

// scored contains sums over held-out rows, in the units of the data: the number of rows (n), the squared errors of a
// model (sse), the targets, and the squared targets.
type scored struct{ n, sse, targets, squares float64 }

func (s *scored) add(o scored) {
	s.n, s.sse, s.targets, s.squares = s.n+o.n, s.sse+o.sse, s.targets+o.targets, s.squares+o.squares
}

// r2 returns the coefficient of determination R², the share of the variance of the targets that the model explains.
func (s *scored) r2() float64 { return 1 - s.sse/(s.squares-s.targets*s.targets/s.n) }

// scoreModel evaluates an announced model on the held-out rows of each agent, if agents are asked to evaluate it.
func (c *invariantChecker) scoreModel(p *party, at version, a *wire.Announcement) {
	if a.MinEvaluationRows == 0 || c.scores[at] != nil {
		return
	}
	every := uint64(c.w.plan.Evaluates)
	if every == 0 || at.version%every != 0 && a.Phase != wire.PhaseFinished || a.MinEvaluationRows != leastHeld {
		c.w.fail("agents must evaluate model %d on %d rows, but the plan requires an evaluation every %d models on "+
			"%d rows",
			at.version, a.MinEvaluationRows, every, leastHeld)
		return
	}
	all := make([]scored, c.w.plan.Agents)
	c.scores[at] = all
	if c.w.plan.personal() {
		return // personal parameters exist only at the agents
	}
	_, file := modelOf(p.disk.file, at.run, wire.ModelVersion(at.version))
	m, err := modelfile.Decode(file)
	if err != nil {
		c.w.fail("model %d: %v", at.version, err)
		return
	}
	by, err := m.Predictor()
	if err != nil {
		c.w.fail("model %d: %v", at.version, err)
		return
	}
	for k := range all {
		held := c.heldBy(k)
		for i := range held.Len() {
			x, y := held.Row(i)
			miss := float64(y) - float64(by.Predict(x).Value)
			all[k].add(scored{1, miss * miss, float64(y), float64(y) * float64(y)})
		}
	}
}

// recordEvaluation checks and records the evaluation that an agent reports in a hello message.
func (c *invariantChecker) recordEvaluation(id wire.AgentID, m *wire.Evaluation) {
	if m.ModelVersion == 0 {
		return
	}
	at, k := version{m.Run, uint64(m.ModelVersion)}, c.w.agent(id).number
	if c.scores[at] == nil {
		c.w.fail("%s reports an evaluation of model %d that was not requested", id, m.ModelVersion)
		return
	}
	if held := c.heldBy(k).Len(); m.Rows > 0 && (int(m.Rows) != held || held < leastHeld) {
		c.w.fail("%s reports an evaluation of model %d on %d rows, but holds out %d rows", id, m.ModelVersion, m.Rows,
			held)
	}
	if m.Rows > 0 {
		c.evaluatorsByModel[at] |= 1 << k
	}
}

// evaluated checks the combined result of an evaluation. There must be a subset of the agents that reported a result
// whose held-out rows give this result.
func (c *invariantChecker) evaluated(f coordinator.ModelEvaluated) {
	at, r := version{c.record.Run, uint64(f.Version)}, &f.Result
	c.evaluations++
	c.lastEvaluated = at
	for some := uint(0); some <= c.evaluatorsByModel[at]; some++ {
		if some&^c.evaluatorsByModel[at] == 0 && bits.OnesCount(some) == r.ReportingAgents && c.matchesScores(r.Rows,
			r.Risk, r.R2, at,
			some) {
			return
		}
	}
	c.w.fail("%d agents with %d rows are reported to evaluate model %d at risk %v, but no %d of the reporting agents "+
		"(%b) match",
		r.ReportingAgents, r.Rows, f.Version, r.Risk, r.ReportingAgents, c.evaluatorsByModel[at])
}

// matchesScores reports whether the held-out rows of a set of agents give this number of rows, risk and R². The set is
// the bit set some.
func (c *invariantChecker) matchesScores(rows uint64, risk float64, r2 *float64, at version, some uint) bool {
	var pool scored
	for k, s := range c.scores[at] {
		if some>>k&1 == 1 {
			s.n = float64(c.heldBy(k).Len())
			pool.add(s)
		}
	}
	if uint64(pool.n) != rows || rows == 0 || c.w.plan.personal() {
		return uint64(pool.n) == rows
	}
	want := pool.r2()
	_, t := c.w.plan.configure()
	if half := 0.5 * pool.sse / pool.n; t.Model.Risk == spec.LossSquared && math.Abs(risk-half) > 1e-4*half {
		return false
	}
	return r2 != nil && math.Abs(*r2-want) <= 1e-4*(2-want)
}
