package coordinator

import (
	"errors"
	"fmt"
	"slices"

	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// attempt is a fold of a set that is not taken yet.
type attempt struct {
	set     []round.Contribution
	model   []float32
	lengths []float64      // of the set's updates
	score   *learner.Score // nil without held-out data
	spread  float64
	fault   error // why it cannot be taken
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

// guard folds the set so that no single agent can ruin the model. A fold with a fault is made again without
// the long updates (round.FindOutliers), or without the longest if none is long; when that has a fault too, the error
// says so. A fold without a fault in which one update outweighs all others is made again as well; held-out data
// choose the better of the two then, and without them the second is taken. Each update that is left out is a fact.
// All is decided from the set and the plan, which the journal has: a restart decides the same.
func (w *workbench) guard(spool *store.Spool, e round.Fold) (*attempt, []UpdateLeftOut, error) {
	all, err := w.try(spool, e, e.Set)
	if err != nil {
		return nil, nil, err
	}
	o := round.FindOutliers(all.lengths, e.Plan.Recent)
	if all.fault == nil && !o.Outweighs {
		return all, nil, nil
	}
	if len(o.Long) == 0 {
		o.Long = []int{longest(all.lengths)}
	}
	left := w.leftOut(e, all, o)
	if len(o.Long) == len(e.Set) {
		return nil, left, all.fault
	}
	rest, err := w.try(spool, e, e.Plan.Without(w.cfg.Round.Weighting, e.Set, o.Long))
	switch {
	case err != nil:
		return nil, nil, err
	case rest.fault == nil && (all.fault != nil || rest.risk() <= all.risk()):
		return rest, left, nil
	case all.fault == nil:
		return all, nil, nil
	}
	return nil, left, fmt.Errorf("%w, also without the %d longest of the %d updates; if this goes on while no device "+
		"lies, the step size is too large",
		rest.fault, len(o.Long), len(e.Set))
}

// leftOut says which updates are left out of a fold, and why.
func (w *workbench) leftOut(e round.Fold, all *attempt, o round.Outliers) (left []UpdateLeftOut) {
	reason := LeftOutNorm
	switch {
	case errors.Is(all.fault, errNotFinite):
		reason = LeftOutNotFinite
	case all.fault != nil:
		reason = LeftOutRisk
	}
	for _, k := range o.Long {
		left = append(left, UpdateLeftOut{Round: e.Round, Agent: e.Set[k].Agent, Reason: reason, Norm: all.lengths[k],
			Usual: o.Usual})
	}
	return left
}

// try folds a set. The error is that an update cannot be read.
func (w *workbench) try(spool *store.Spool, e round.Fold, set []round.Contribution) (*attempt, error) {
	acc := make([]float64, len(w.base))
	norms, spread, err := addAll[float32](acc, spool, set)
	if err != nil {
		return nil, err
	}
	a := &attempt{set: set, model: make([]float32, len(w.base)), lengths: norms, spread: spread}
	for k, norm := range norms {
		a.lengths[k] = e.Plan.Length(w.cfg.Round.Weighting, set[k], norm)
	}
	if err := round.Advance(a.model, w.base, acc); errors.Is(err, wire.ErrNotFinite) {
		a.fault = fmt.Errorf("%w: %w", errNotFinite, err)
		return a, nil
	}
	if w.held == nil {
		return a, nil
	}
	score := learner.Evaluate(w.problem.Model, a.model, w.held)
	a.score = &score
	base := 0.0
	if len(e.Plan.Recent) == 0 {
		base = learner.Evaluate(w.problem.Model, w.base, w.held).Risk
	}
	if round.Exploded(score.Risk, base, w.floor, e.Plan.Recent) {
		a.fault = fmt.Errorf("%w: it is %.4g", errExploded, score.Risk)
	}
	return a, nil
}

// longest is the place of the longest update, the first of equals.
func longest(lengths []float64) int { return slices.Index(lengths, slices.Max(lengths)) }
