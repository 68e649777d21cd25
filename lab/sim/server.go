package sim

import (
	"math"
	"slices"

	"github.com/fedmesh/fedmesh/lab/attack"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/optimizer"
	"github.com/fedmesh/fedmesh/round/rule"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// server computes the next model from the participants' updates in the same way as the coordinator. It aggregates the
// updates by the aggregation rule, in a fixed order, and then applies the server optimiser.
type server[T learner.Float] struct {
	*runConstants[T]
	round  wire.RoundID
	drawn  []round.DrawnIndex // participants in the order of the agents
	places []round.DrawnIndex // participants in the order of the aggregation
	plan   round.Plan

	rule rule.Rule[T]
	keep bool // true if all updates of a round are stored; otherwise each update is aggregated on arrival
	rows rule.InMemoryUpdates[T]
	set  []rule.UpdateMetadata // metadata of the participants
	// recent contains summaries of previous aggregations. recent is used only if updates are stored.
	recent []round.PastAggregationSummary

	lengths []float64 // norm of each agent's last update, used for sampling; 0 means unknown

	packing  *lossyCodec[T]
	feedback *feedback[T]
	change   []T

	step      []float64
	optimizer optimizer.Optimizer
	state     [][]float64
	kept      [][]float64 // state of the aggregation rule between rounds
}

// newServer returns the server for a model of d parameters.
func newServer[T learner.Float](c *runConstants[T], d int) *server[T] {
	s := &server[T]{runConstants: c, step: make([]float64, d), change: make([]T, d), rule: rule.New[T](c.e.Aggregation)}
	by := &c.e.Aggregation
	s.keep = s.rule.PassCount() > 1 || by.ClipNorm > 0 || by.ClipAboveFactor > 0 || by.RefuseAboveFactor > 0 ||
		len(c.liars) > 0 && c.attack.IsCollusion()
	if c.e.Sampling == spec.SamplingImportance {
		s.lengths = make([]float64, c.agents)
	}
	s.packing, s.feedback = newPacking[T](c.e.Codec), newFeedback[T](c.e.Codec, c.agents)
	s.optimizer = optimizer.New(c.e.ServerOptimizer)
	s.state, s.kept = optimizer.NewState(s.optimizer, d), rule.NewState(s.rule, d)
	return s
}

// begin starts round i and returns its participants in the order of the aggregation.
func (s *server[T]) begin(i int, plan round.Plan, drawn []round.DrawnIndex) []round.DrawnIndex {
	s.round, s.plan = wire.RoundID(i), plan
	s.plan.RecentAggregations = s.recent
	if slices.Equal(drawn, s.drawn) { // the order is unchanged, which is the usual case if all agents participate
		return s.places
	}
	s.drawn, s.set = append(s.drawn[:0], drawn...), s.set[:0]
	s.sort(drawn)
	for _, p := range s.places {
		s.set = append(s.set, rule.UpdateMetadata{Bucket: s.bucket(p.Index), AgentIDRank: p.Index,
			DrawCount:          p.DrawCount,
			ContributionFactor: s.plan.ContributionFactor(s.e.Weighting, p.DrawCount, s.weight(p.Index), p.Odds)})
	}
	return s.places
}

// sort sorts the participants by bucket with a stable counting sort.
func (s *server[T]) sort(places []round.DrawnIndex) {
	var next [rule.BucketCount + 1]int
	for _, p := range places {
		next[s.bucket(p.Index)+1]++
	}
	for b := range rule.BucketCount {
		next[b+1] += next[b]
	}
	s.places = slices.Grow(s.places[:0], len(places))[:len(places)]
	for _, p := range places {
		at := &next[s.bucket(p.Index)]
		s.places[*at] = p
		*at++
	}
}

// sender calls take with the result of each participant, in the order of the aggregation. The update of a participant
// is v − base. If base is nil, v is a gradient.
type sender[T learner.Float] func(take func(k int, v, base []T)) error

// stream adapts a sender to [rule.UpdateReader], for rules that read each update once.
type stream[T learner.Float] struct {
	*server[T]
	send sender[T]
}

// Len implements [rule.UpdateReader].
func (s stream[T]) Len() int { return len(s.step) }

// ForEachUpdate implements [rule.UpdateReader]. ForEachUpdate ignores the requested range and reads all elements.
func (s stream[T]) ForEachUpdate(_, _ int, take func(k int, v []T)) error {
	return s.send(func(k int, v, base []T) {
		v = s.receivedVector(k, v, base)
		s.remember(k, v)
		take(k, v)
	})
}

// ReadColumns implements [rule.UpdateReader].
func (stream[T]) ReadColumns(int, [][]T) error {
	panic("sim: ReadColumns is not supported for rules with a single " +
		"pass")
}

// receivedVector returns the update or gradient of participant k as the server receives it, that is, after an attack
// and lossy compression. It draws the same random numbers as a live agent.
func (s *server[T]) receivedVector(k int, v, base []T) []T {
	if base == nil {
		copy(s.change, v)
	}
	change, v := s.change[:len(base)], v[:len(base)]
	for j, x := range base {
		change[j] = T(v[j] - x)
	}
	if from := s.places[k].Index; s.liars[from] {
		attack.CorruptUpdate(s.attack, s.change, task.AgentRand(s.seed^forAttack, s.round, s.stream(from)))
	}
	s.pack(k, s.change)
	return s.change
}

// pack replaces v by the vector that the server decodes after lossy compression.
func (s *server[T]) pack(k int, v []T) {
	if s.packing != nil {
		from := s.places[k].Index
		s.packing.begin(s.seed, s.round, s.stream(from))
		s.feedback.add(k, from, v, s.packing.encodeAndDecode)
	}
}

// remember stores the norm of the agent's update for sampling in later rounds.
func (s *server[T]) remember(k int, v []T) {
	if s.lengths == nil {
		return
	}
	at := s.places[k].Index
	s.lengths[at] = s.plan.NormPerStepWeight(s.e.Weighting, round.Contribution{Weight: s.weight(at),
		UpdateMetadata: rule.UpdateMetadata{Norm: math.Sqrt(learner.AddSquares(0, v))}})
}

// advance computes the model that follows w and stores it in dst. It returns [rule.ErrTooFewUpdates] if a coordinator
// would abandon the round. It also returns the error of send, or an error if the new model is not finite.
func (s *server[T]) advance(dst, w []T, send sender[T]) error {
	set := rule.UpdateSet[T]{Updates: s.set, UpdateScale: s.plan.UpdateScale(), RuleState: s.kept,
		UpdateReader: stream[T]{s,
			send}}
	var lengths []float64
	var above []int
	if s.keep {
		var err error
		if set.Updates, set.UpdateReader, lengths, above, err = s.bounded(set.UpdateReader); err != nil {
			return err
		}
	}
	weighed, err := s.rule.AssessUpdates(&set)
	if err == nil {
		err = s.rule.AggregatePart(s.step, &set, 0)
	}
	s.settleFeedback(err != nil, above, weighed.ExcludedIndices)
	if err != nil {
		return err
	}
	s.optimizer.Step(s.step, s.state)
	err = round.ApplyStep(dst, w, s.step)
	if s.keep && err == nil {
		s.recent = round.AppendPastAggregation(s.recent, 0, round.ReportedRiskSummary{}, lengths)
	}
	return err
}

// settleFeedback updates the error feedback after a round. The parameter above contains the indices of the updates that
// were refused because of their norm. The parameter out contains the indices, among the remaining updates, of the
// updates that the aggregation rule excluded.
func (s *server[T]) settleFeedback(abandoned bool, above, out []int) {
	if s.feedback == nil {
		return
	}
	agents, left := make([]int, len(s.places)), slices.Clone(above)
	for k, n := 0, 0; k < len(agents); k++ {
		agents[k] = s.places[k].Index
		if slices.Contains(above, k) {
			continue
		}
		if slices.Contains(out, n) {
			left = append(left, k)
		}
		n++
	}
	s.feedback.updateResiduals(agents, abandoned, left)
}

// bounded stores all updates of the round and applies the limits for the norm. It clips or refuses updates whose norm
// is too large.
func (s *server[T]) bounded(all rule.UpdateReader[T]) (shares []rule.UpdateMetadata, rows rule.InMemoryUpdates[T],
	lengths []float64,
	above []int, err error) {
	set := make([]round.Contribution, len(s.set))
	err = all.ForEachUpdate(0, all.Len(), func(k int, v []T) {
		if k == len(s.rows) {
			s.rows = append(s.rows, make([]T, len(v)))
		}
		copy(s.rows[k], v)
	})
	if err != nil {
		return nil, nil, nil, nil, err
	}
	if s.attack.IsCollusion() {
		s.collude()
	}
	for k := range set {
		set[k] = round.Contribution{Weight: s.weight(s.places[k].Index), UpdateMetadata: s.set[k]}
		set[k].Norm = math.Sqrt(learner.AddSquares(0, s.rows[k]))
	}
	b := s.plan.AssessUpdateNorms(s.e.Aggregation, false, s.e.Weighting, set)
	for _, x := range b.KeptContributions {
		shares = append(shares, x.UpdateMetadata)
	}
	for k := range set {
		if !slices.Contains(b.RefusedIndices, k) {
			rows = append(rows, s.rows[k])
		}
	}
	return shares, rows, b.KeptNormsPerStepWeight, b.RefusedIndices, nil
}
