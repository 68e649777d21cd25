package world

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/fedmesh/fedmesh/codec"
	"github.com/fedmesh/fedmesh/coordinator/aggregation"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/modelfile"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/optimizer"
	"github.com/fedmesh/fedmesh/round/rule"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// This file recomputes the models of a run in float64, independently of the coordinator's code. It implements the
// aggregation rules and optimisers as docs/ALGORITHMS.md defines them.

// version identifies a model by its run and its version number.
type version struct {
	run     wire.RunID
	version uint64
}

// state holds the moments m and v of the server optimiser after the step to a model.
type state struct{ m, v []float64 }

// taken is an accepted update that the coordinator aggregates in a round.
type taken struct {
	agent  wire.AgentID
	times  int
	factor float64 // factor of the update in the weighted mean
	length float64 // norm of the update; divided by the agent's weight if the agent has applied the weight
	v      []float64
}

// fold checks the model of a closed round. The model must be the sum of the previous model and the aggregate of the
// round's updates, with each update used once. fold also checks the plan of the next round.
func (c *invariantChecker) fold(p *party, r wire.RoundID, at version, next *round.Plan) {
	base, ok := c.model(p, at.run, at.version-1)
	after, ok2 := c.model(p, at.run, at.version)
	if !ok || !ok2 {
		c.w.fail("round %d is closed but its models are not on the disk", r)
		return
	}
	set, ok := c.takenBy(r, len(base))
	if !ok {
		return
	}
	cfg, t := c.w.plan.configure()
	recent := c.record.Plan.RecentAggregations
	set = c.above(cfg.Aggregation, r, set, recent)
	c.remembered(r, next, set, recent)
	d, ok := c.aggregate(&cfg.Aggregation, at, set, len(base))
	if !ok {
		return
	}
	if t.Training.ExchangeKind == spec.ExchangeGradient {
		size := t.Training.StepSize
		if size == 0 { // the step size decreases, and each round has only one local step
			steps := float64(at.version)
			if c.w.plan.refreshed(at.version) {
				steps--
			}
			size = 2 / (t.Training.StrongConvexity * (t.Training.StepSizeDecayOffset + steps))
		}
		for j := range d {
			d[j] *= -size
		}
	}
	if !c.optimise(&cfg.ServerOptimizer, at, d) {
		return
	}
	c.folds++
	for j := range d {
		want := float64(base[j]) + d[j]
		if got := float64(after[j]); math.Abs(got-want) > 1e-6*(1+math.Abs(want)) {
			c.w.fail("parameter %d of model %d is %v, but the updates of round %d result in %v", j, at.version,
				got, r, want)
			return
		}
	}
}

// refreshed checks the model that follows a new statistics round. For unstandardised rows, it must give the same
// predictions as the previous model.
func (c *invariantChecker) refreshed(p *party, r wire.RoundID, at version) {
	var by [2]*learner.Predictor[float32]
	var scale float64
	var columns [2][]float64
	for i := range by {
		_, file := modelOf(p.disk.file, at.run, wire.ModelVersion(at.version-1+uint64(i)))
		m, err := modelfile.Decode(file)
		if err == nil {
			by[i], err = m.Predictor()
		}
		if err != nil {
			c.w.fail("model %d of the run: %v", at.version-1+uint64(i), err)
			return
		}
		scale = m.Standardization.Scale[3]
		columns[i] = slices.Concat(m.Standardization.Mean, m.Standardization.Scale)
		if cfg, _ := c.w.plan.configure(); i == 1 {
			n, tau := len(m.ParameterBytes)/4, cfg.ServerOptimizer.Tau
			c.states[at] = state{make([]float64, n), slices.Repeat([]float64{tau * tau}, n)}
			c.aggregates[at] = make([]float64, n)
		}
	}
	if c.refreshes++; !slices.Equal(columns[0], columns[1]) {
		c.restandardizedAfter = r
	}
	for _, row := range [][]float32{{0, 0, 0}, {15, 60, 2}, {30, 20, 9}, {-5, 90, 0.5}} {
		if before, after := by[0].Predict(row).Value, by[1].Predict(row).Value; math.Abs(after-before) > 1e-4*scale {
			c.w.fail("model %d predicts %v for %v, but the restandardized model %d predicts %v", at.version-1,
				before, row, at.version, after)
		}
	}
}

// takenBy returns the accepted updates of a round as the agents saved them. It returns false if an update is unknown
// because a disk failed.
func (c *invariantChecker) takenBy(r wire.RoundID, n int) (set []taken, ok bool) {
	cfg, t := c.w.plan.configure()
	unpack := codec.ForName[float32](cmp.Or(t.Training.UpdateCodec, spec.CodecRaw))
	v := make([]float32, n)
	for id, x := range c.sets[r] {
		payload, known := c.payloads[x.AcceptedUpdateDigest]
		switch {
		case known && unpack.Decode(v, payload) == nil:
		case c.w.agent(id).hadTrouble:
			return nil, false // the agent's disk failed to store the update
		default:
			c.w.fail("round %d uses an update that %s did not make", r, id)
			return nil, false
		}
		u := taken{agent: id, times: x.DrawCount, factor: float64(x.DrawCount), v: make([]float64, n)}
		for j, y := range v {
			u.v[j] = float64(y)
		}
		u.length = norm(u.v)
		if inStep := cfg.WeightPlacement == spec.WeightInStepSize &&
			t.Training.ExchangeKind != spec.ExchangeGradient; !inStep {
			u.factor *= x.Weight
		} else if x.Weight > 0 {
			u.length /= x.Weight
		}
		if x.Odds > 0 {
			u.factor /= x.Odds
		}
		set = append(set, u)
	}
	slices.SortFunc(set, func(a, b taken) int { return cmp.Compare(a.agent, b.agent) })
	return set, true
}

// above checks which updates the setting refuse_above rejects. above returns the remaining updates, clipped as
// configured. The reference norm is the larger of two values: the median norm in this round, and the median of the
// median norms of the last five rounds.
func (c *invariantChecker) above(by rule.Config, r wire.RoundID, set []taken,
	recent []round.PastAggregationSummary) []taken {
	usual, most, n := 0.0, math.Inf(1), len(set)
	if n >= 3 {
		var before []float64
		for _, f := range recent[max(0, len(recent)-5):] {
			before = append(before, f.MedianNorm)
		}
		usual = max(median(lengths(set)), median(before))
	}
	if by.RefuseAboveFactor > 0 && n >= 5 && usual > 0 {
		most = by.RefuseAboveFactor * usual
	}
	set = slices.DeleteFunc(set, func(u taken) bool {
		out, tooLong := false, false
		for _, f := range c.leftOut[r] {
			out = out || f.Agent == u.agent
			tooLong = tooLong || f.Agent == u.agent && f.Reason == aggregation.LeftOutAbove
		}
		if want := u.length > most; want != tooLong && math.Abs(u.length-most) > 1e-6*most {
			c.w.fail("the update of %s in round %d has the norm %g with a limit of %g, but left out is %v",
				u.agent, r, u.length, most, tooLong)
		}
		if tooLong {
			c.refusedAbove++
		}
		return out
	})
	for k := range set {
		u := &set[k]
		if by.Rule == rule.Mean && by.ClipAboveFactor*usual > 0 && u.length > by.ClipAboveFactor*usual {
			u.factor *= by.ClipAboveFactor * usual / u.length
			c.clipped++
		}
		// no configuration in this package uses both kinds of clipping
		if n := norm(u.v); by.ClipNorm > 0 && n > by.ClipNorm {
			for j := range u.v {
				u.v[j] *= by.ClipNorm / n
			}
			c.clipped++
		}
	}
	return set
}

// remembered checks that the plan of the next training round contains the median update norm of this round.
func (c *invariantChecker) remembered(r wire.RoundID, next *round.Plan, set []taken,
	recent []round.PastAggregationSummary) {
	if next.Kind != wire.KindTraining {
		return
	}
	want, n := median(lengths(set)), min(len(recent)+1, 20)
	if len(next.RecentAggregations) != n || math.Abs(next.RecentAggregations[n-1].MedianNorm-want) > 1e-6*want {
		c.w.fail("after round %d, the recent aggregations must have %d entries and the last median norm %g, but are "+
			"%+v", r, n, want,
			next.RecentAggregations)
	}
}

func lengths(set []taken) (all []float64) {
	for _, u := range set {
		all = append(all, u.length)
	}
	return all
}

// median returns the median of x. If the number of elements is even, it returns the smaller of the two middle elements.
// median returns 0 if x is empty.
func median(x []float64) float64 {
	if len(x) == 0 {
		return 0
	}
	slices.Sort(x)
	return x[(len(x)-1)/2]
}

// optimise replaces the aggregate d by the step of the server optimiser. It returns false if the previous state of the
// optimiser is unknown.
func (c *invariantChecker) optimise(o *optimizer.Config, at version, d []float64) bool {
	if o.Name == optimizer.None {
		return true
	}
	before, known := c.states[version{at.run, at.version - 1}]
	switch {
	case at.version == 1:
		before = state{make([]float64, len(d)), slices.Repeat([]float64{o.Tau * o.Tau}, len(d))}
	case !known:
		return false
	}
	s := state{slices.Clone(before.m), slices.Clone(before.v)}
	c.states[at] = s
	rate, beta1 := cmp.Or(o.LearningRate, 0.1), o.Beta1
	switch o.Name {
	case "fedavgm":
		for j, x := range d {
			s.m[j] = o.Momentum*s.m[j] + x
			d[j] = cmp.Or(o.LearningRate, 1) * s.m[j]
		}
		return true
	case "fedadagrad":
		beta1 = 0
	}
	for j, x := range d {
		s.m[j] = beta1*s.m[j] + (1-beta1)*x
		s.v[j] = second(o, s.v[j], x*x)
		d[j] = rate * s.m[j] / (math.Sqrt(s.v[j]) + o.Tau)
	}
	return true
}

// second returns the new second moment of the server optimiser. It is computed from the previous second moment v and
// the squared aggregate d2.
func second(o *optimizer.Config, v, d2 float64) float64 {
	switch o.Name {
	case "fedadagrad":
		return v + d2
	case "fedadam":
		return o.Beta2*v + (1-o.Beta2)*d2
	case "fedyogi":
		return v + (1-o.Beta2)*d2*float64(cmp.Compare(d2, v))
	}
	panic(fmt.Sprintf("world: no reference implementation of the optimiser %s", o.Name))
}

// model reads the parameters of a model from the coordinator's disk.
func (c *invariantChecker) model(p *party, run wire.RunID, version uint64) ([]float32, bool) {
	_, file := modelOf(p.disk.file, run, wire.ModelVersion(version))
	tensors, _, err := store.DecodeSafetensors(file)
	if err != nil {
		return nil, false
	}
	var data []byte
	for _, s := range c.schema {
		for _, t := range tensors {
			if t.Name == s.Name {
				data = append(data, t.Data...)
			}
		}
	}
	v := make([]float32, len(data)/4)
	return v, wire.DecodeVector(v, data) == nil
}
