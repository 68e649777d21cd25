package sim

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/fedmesh/fedmesh/codec"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/optimizer"
	"github.com/fedmesh/fedmesh/round/rule"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// server makes the next model of what a round's participants send, as the coordinator does: by the rule, in the order
// of the fold, and then by the optimiser.
type server[T learner.Float] struct {
	*course[T]
	round  wire.RoundID
	places []round.Place // of the round, in the order of the fold
	plan   *round.Plan

	sum  *rule.Sum    // of the mean, which needs one update at a time
	rule rule.Rule[T] // of other rules, and where long updates are left out: these see all of them
	rows rule.Memory[T]
	set  []rule.Share

	codec  codec.Codec[T] // nil = raw
	pcg    rand.PCG       // of its rounding
	rng    *rand.Rand
	change []T
	packed []byte

	step      []float64
	optimizer optimizer.Optimizer
	state     [][]float64
}

func newServer[T learner.Float](c *course[T]) *server[T] {
	d := c.in.Problem.Model.Params()
	s := &server[T]{course: c, step: make([]float64, d)}
	if a := c.e.Aggregation; a.Rule == rule.Mean && a.RefuseAbove == 0 {
		s.sum = rule.NewSum(d)
	} else {
		s.rule = rule.New[T](a)
	}
	if c.e.Codec != spec.CodecRaw {
		s.codec, s.change, s.rng = codec.Of[T](c.e.Codec), make([]T, d), rand.New(&s.pcg)
	}
	if s.optimizer = optimizer.New(c.e.ServerOptimizer); s.optimizer != nil {
		s.state = optimizer.NewState(s.optimizer, d)
	}
	return s
}

// begin begins round i, and returns its places in the order of the fold.
func (s *server[T]) begin(i int, plan *round.Plan, places []round.Place) []round.Place {
	s.round, s.plan, s.set = wire.RoundID(i), plan, s.set[:0]
	s.places = append(s.places[:0], places...)
	slices.SortStableFunc(s.places, func(p, q round.Place) int {
		return cmp.Compare(s.bucket(p.Index), s.bucket(q.Index))
	})
	return s.places
}

// take takes what a participant sends, in the order of the fold: a gradient, or, with a base, the change v − base.
func (s *server[T]) take(p round.Place, v, base []T) {
	share := rule.Share{Bucket: s.bucket(p.Index), Times: p.Times,
		Factor: s.plan.Factor(s.e.Weighting, p.Times, s.weight(p.Index))}
	s.set = append(s.set, share)
	if s.codec != nil {
		v, base = s.carried(p, v, base), nil
	}
	switch {
	case s.sum != nil && base == nil:
		rule.Add(s.sum, share.Bucket, share.Factor, v)
	case s.sum != nil:
		rule.AddChange(s.sum, share.Bucket, share.Factor, v, base)
	default:
		s.keep(v, base)
	}
}

// carried is what the server has of a change, or of a gradient, after the codec: with the draws of a live agent.
func (s *server[T]) carried(p round.Place, v, base []T) []T {
	copy(s.change, v)
	for j, x := range base {
		s.change[j] = T(v[j] - x)
	}
	task.Reseed(&s.pcg, task.PackSeed(s.seed), s.round, s.stream(p.Index))
	s.packed = s.codec.Append(s.packed[:0], s.change, s.rng)
	if s.codec.Decode(s.change, s.packed) != nil {
		s.change[0] = T(math.NaN()) // the next model is not finite
	}
	return s.change
}

// keep keeps an update for a rule that reads all of them.
func (s *server[T]) keep(v, base []T) {
	k := len(s.set) - 1
	if k == len(s.rows) {
		s.rows = append(s.rows, make([]T, len(v)))
	}
	copy(s.rows[k], v)
	for j, x := range base {
		s.rows[k][j] = T(v[j] - x)
	}
}

// end writes the next model to dst, which is after w. The error is that it is not finite.
func (s *server[T]) end(dst, w []T) error {
	if s.sum != nil {
		set := rule.Set[T]{Shares: s.set}
		s.sum.End(s.step, set.Draws(), s.plan.Scale())
	} else if err := s.fold(); err != nil {
		return err
	}
	if s.optimizer != nil {
		s.optimizer.Step(s.step, s.state)
	}
	return round.Advance(dst, w, s.step)
}

// fold folds what was kept, without the updates that are too long.
func (s *server[T]) fold() error {
	set := rule.Set[T]{Shares: s.set, Scale: s.plan.Scale(), Source: s.rows[:len(s.set)]}
	if s.e.Aggregation.RefuseAbove > 0 {
		lengths := make([]float64, len(s.set))
		for k, v := range s.rows[:len(s.set)] {
			norm, err := round.Norm(v)
			if err != nil {
				return err
			}
			lengths[k] = s.plan.Length(s.e.Weighting, round.Contribution{Weight: s.weight(s.places[k].Index)}, norm)
		}
		_, long := s.e.Aggregation.Above(lengths)
		var rows rule.Memory[T]
		set.Shares = nil
		for k := range s.set {
			if !slices.Contains(long, k) {
				set.Shares, rows = append(set.Shares, s.set[k]), append(rows, s.rows[k])
			}
		}
		set.Source = rows
	}
	return s.rule.Fold(s.step, set)
}
