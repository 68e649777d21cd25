package coordinator

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/fedmesh/fedmesh/codec"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/optimizer"
	"github.com/fedmesh/fedmesh/round/rule"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// attempt is a fold of a set that is not taken yet.
type attempt struct {
	set     []round.Contribution
	model   []byte         // the vector as it goes over the wire
	lengths []float64      // of the set's updates
	score   *learner.Score // nil without held-out data
	spread  float64        // NaN where the rule is not the mean
	state   [][]float64    // of the server's optimiser, after this fold
	fault   error          // why it cannot be taken
}

// risk is that on held-out data, 0 without any.
func (a *attempt) risk() float64 {
	if a.score == nil {
		return 0
	}
	return a.score.Risk
}

// The faults of a fold.
var (
	errNotFinite = errors.New("the new model is not finite")
	errExploded  = errors.New("the new model's risk on held-out data is over 10 times the worst of the last rounds")
)

// guard folds the set so that no single agent can ruin the model. First those go that aggregation.refuse_above leaves
// out. A fold with a fault is made again without the long updates (round.FindOutliers), or without the longest if none
// is long; when that has a fault too, the error says so. A fold without a fault in which one update outweighs all
// others is made again as well; held-out data choose the better of the two then, and without them the second is taken,
// unless it has too few updates for the rule. Each update that is left out is a fact. All is decided from the set and
// the plan.
func (w *workbench) guard(run wire.RunID, spool *store.Spool, e round.Fold) (*attempt, []UpdateLeftOut, error) {
	set, refused := w.refuseAbove(e)
	all, err := w.try(run, spool, e, set)
	if err != nil {
		return nil, refused, err
	}
	o := round.FindOutliers(all.lengths, e.Plan.Recent)
	if all.fault == nil && !o.Outweighs {
		return all, refused, nil
	}
	if len(o.Long) == 0 {
		o.Long = []int{longest(all.lengths)}
	}
	left := append(refused, leftOut(e, all, o)...)
	if len(o.Long) == len(set) {
		return nil, left, all.fault
	}
	rest, err := w.try(run, spool, e, round.Without(set, o.Long))
	switch {
	case all.fault == nil && errors.Is(err, rule.ErrTooFew):
		return all, refused, nil
	case err != nil:
		return nil, refused, err
	case rest.fault == nil && (all.fault != nil || rest.risk() <= all.risk()):
		return rest, left, nil
	case all.fault == nil:
		return all, refused, nil
	}
	return nil, left, fmt.Errorf("%w, also without the %d longest of the %d updates; if this goes on while no device "+
		"lies, the step size is too large",
		rest.fault, len(o.Long), len(set))
}

// refuseAbove returns the set without the updates that are too long by the configuration, whatever their fold would be.
func (w *workbench) refuseAbove(e round.Fold) ([]round.Contribution, []UpdateLeftOut) {
	lengths := w.lengths(e, e.Set)
	usual, long := w.cfg.Round.Aggregation.Above(lengths)
	var left []UpdateLeftOut
	for _, k := range long {
		left = append(left, UpdateLeftOut{Round: e.Round, Agent: e.Set[k].Agent, Reason: LeftOutAbove, Norm: lengths[k],
			Usual: usual})
	}
	return round.Without(e.Set, long), left
}

// leftOut says which updates are left out of a fold, and why.
func leftOut(e round.Fold, all *attempt, o round.Outliers) (left []UpdateLeftOut) {
	reason := LeftOutNorm
	switch {
	case errors.Is(all.fault, errNotFinite):
		reason = LeftOutNotFinite
	case all.fault != nil:
		reason = LeftOutRisk
	}
	for _, k := range o.Long {
		left = append(left, UpdateLeftOut{Round: e.Round, Agent: all.set[k].Agent, Reason: reason, Norm: all.lengths[k],
			Usual: o.Usual})
	}
	return left
}

// try folds a set. The error is that an update, or the held-out data, cannot be read.
func (w *workbench) try(run wire.RunID, spool *store.Spool, e round.Fold, set []round.Contribution) (*attempt, error) {
	a := &attempt{set: set, lengths: w.lengths(e, set), spread: math.NaN()}
	o := optimizer.New(w.cfg.Round.ServerOptimizer)
	var err error
	if a.state, err = w.state(o, run, e.Plan.Version, e.Plan.Base.Hash); err != nil {
		return nil, err
	}
	if err := w.foldInto(a, o, w.updatesOf(spool, set), e.Plan.Scale()); err != nil || a.fault != nil {
		return a, err
	}
	if w.held == nil {
		return a, nil
	}
	score, err := w.held.score(a.model)
	if err != nil {
		return nil, err
	}
	a.score = &score
	base := 0.0
	if len(e.Plan.Recent) == 0 {
		of, err := w.held.score(w.base.data)
		if err != nil {
			return nil, err
		}
		base = of.Risk
	}
	if round.Exploded(score.Risk, base, w.floor, e.Plan.Recent) {
		a.fault = fmt.Errorf("%w: it is %.4g", errExploded, score.Risk)
	}
	return a, nil
}

// foldInto makes the model of an attempt from its updates, strip by strip: rules and optimisers have each coordinate
// depend on itself alone. Neither model is ever there as a vector.
func (w *workbench) foldInto(a *attempt, o optimizer.Optimizer, u *updates, scale float64) error {
	by, d, v, mean := w.cfg.Round.Aggregation, make([]float64, min(strip, u.d)), make([]float32, min(strip, u.d)), 0.0
	a.model = make([]byte, 0, len(w.base.data))
	set, fold := rule.Set[float32]{Scale: scale, Source: u}, rule.New[float32](by)
	for _, x := range a.set {
		set.Shares = append(set.Shares, x.Share)
	}
	err := u.strips(func(from, to int) error {
		d, v, state := d[:to-from], v[:to-from], make([][]float64, len(a.state))
		for i, s := range a.state {
			state[i] = s[from:to]
		}
		if err := fold.Fold(d, set); err != nil {
			return err
		}
		mean = addMean(mean, a.set, d, scale)
		o.Step(d, state)
		if err := wire.DecodeVector(v, w.base.data[4*from:4*to]); err != nil {
			return err
		}
		if err := round.Advance(v, v, d); err != nil && a.fault == nil {
			a.fault = fmt.Errorf("%w: from parameter %d on: %w", errNotFinite, from, err)
		}
		a.model = wire.AppendVector(a.model, v)
		return nil
	})
	if by.Rule == rule.Mean {
		a.spread = spread(a.set, mean)
	}
	return err
}

func (w *workbench) updatesOf(spool *store.Spool, set []round.Contribution) *updates {
	return &updates{spool: spool, set: set, d: len(w.base.data) / 4,
		codec: codec.Of[float32](w.problem.Task.Training.Codec)}
}

// lengths are ‖v_k‖ for the weights that the agents' steps carried.
func (w *workbench) lengths(e round.Fold, set []round.Contribution) []float64 {
	lengths := make([]float64, len(set))
	for k, x := range set {
		lengths[k] = e.Plan.Length(w.cfg.Round.Weighting, x)
	}
	return lengths
}

// longest is the place of the longest update, the first of equals.
func longest(lengths []float64) int { return slices.Index(lengths, slices.Max(lengths)) }
