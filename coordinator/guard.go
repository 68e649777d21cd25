package coordinator

import (
	"errors"
	"fmt"
	"math"
	"slices"

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
	fold    float64        // ‖D_i‖₂ of the fold,
	step    float64        // and ‖w_i − w_{i−1}‖₂ of what the optimiser has made of it
	state   [][]float64    // of the server's optimiser and the rule, after this fold
	weighed rule.Weighed   // what the rule made of the set
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
	errDiverged  = errors.New("the local steps of most participants diverge from the base model")
)

// guard folds the set and rejects a model that is not finite or has diverged on held-out data. Updates above
// aggregation.refuse_above are left out before, and others are clipped to aggregation.clip and clip_above
// (round.Plan.Bound). A rejected fold is repeated without the long updates, or without the longest if none is long; if
// that is rejected, too, guard returns an error.
//
// With round.robust a good fold in which updates outweigh all others is also repeated, without these. Held-out data
// select the better of the two. Without held-out data the second is taken, unless it has too few updates for the rule.
//
// Each update that is left out is a fact. The result depends on the set and the plan only.
func (w *modelState) guard(run wire.RunID, spool *store.Spool, e round.Fold) (*attempt, []UpdateLeftOut, error) {
	all, done, err := w.unpack(e.Round, spool, e.Set)
	defer done()
	if err != nil {
		return nil, nil, err
	}
	return w.guarded(run, all, e)
}

// guarded is guard of updates that can be read in strips.
func (w *modelState) guarded(run wire.RunID, spool packed, e round.Fold) (*attempt, []UpdateLeftOut, error) {
	b := w.bounds(&e)
	var left []UpdateLeftOut
	for _, k := range b.Above {
		left = append(left, w.leftOut(&e, e.Set[k], b.Usual, LeftOutAbove))
	}
	all, err := w.try(run, spool, e, b.Set, b.Lengths)
	if err != nil {
		return nil, left, err
	}
	doubted, reason := suspects(all.fault, &b)
	if len(doubted) == 0 {
		return all, left, nil
	}
	shorter := slices.Clone(left)
	for _, k := range doubted {
		shorter = append(shorter, w.leftOut(&e, b.Set[k], b.Usual, reason))
	}
	set, lengths := round.Without(b.Set, doubted), without(b.Lengths, doubted)
	if len(set) == 0 {
		return nil, shorter, all.fault
	}
	rest, err := w.try(run, spool, e, set, lengths)
	switch {
	case all.fault == nil && errors.Is(err, rule.ErrTooFew):
		return all, left, nil
	case err != nil:
		return nil, left, err
	case rest.fault == nil && (all.fault != nil || rest.risk() <= all.risk()):
		return rest, shorter, nil
	case all.fault == nil:
		return all, left, nil
	}
	return nil, shorter, fmt.Errorf("%w, also without the %d longest of the %d updates; if this goes on while no "+
		"device lies, the step size is too large", rest.fault, len(doubted), len(b.Set))
}

// bounds compares the updates of a fold with their usual length.
func (w *modelState) bounds(e *round.Fold) round.Bounds {
	r := &w.cfg.Round
	return e.Plan.Bound(r.Rule(), r.Robust, r.Weighting, e.Set)
}

// suspects are the places in b.Set of the updates without which a fold is made again, and why; none where it is good.
func suspects(fault error, b *round.Bounds) ([]int, LeaveOutReason) {
	switch {
	case fault == nil:
		return b.Outweigh, LeftOutNorm
	case len(b.Long) == 0:
		b.Long = []int{longest(b.Lengths)}
	}
	if errors.Is(fault, errNotFinite) {
		return b.Long, LeftOutNotFinite
	}
	return b.Long, LeftOutRisk
}

// leftOut says that an update is left out, and why.
func (w *modelState) leftOut(e *round.Fold, x round.Contribution, usual float64, why LeaveOutReason) UpdateLeftOut {
	return UpdateLeftOut{Round: e.Round, Agent: x.Agent, Reason: why, Usual: usual,
		Norm: e.Plan.Length(w.cfg.Round.Weighting, x)}
}

// clipped says of which updates of a fold only a part counts.
func (w *modelState) clipped(e *round.Fold, a *attempt) (facts []Fact) {
	by := w.cfg.Round.Rule()
	norm, above := UpdatesClipped{Round: e.Round, Reason: ClippedNorm}, UpdatesClipped{Round: e.Round,
		Reason: ClippedAbove}
	for k, x := range a.set {
		f := &above
		switch ClipReason(by.BoundBy(&x.Share)) {
		case "":
			continue
		case ClippedNorm:
			f = &norm
		}
		f.Agents = append(f.Agents, x.Agent)
		f.Most, f.Longest = a.lengths[k]*x.Counted()/x.Norm, max(f.Longest, a.lengths[k])
	}
	far := UpdatesClipped{Round: e.Round, Reason: ClippedRadius, Agents: a.agents(a.weighed.Far), Most: by.Radius}
	for _, x := range a.weighed.Distances {
		far.Longest = max(far.Longest, x)
	}
	for _, f := range []UpdatesClipped{norm, above, far} {
		if len(f.Agents) > 0 {
			facts = append(facts, f)
		}
	}
	return facts
}

// agents are those at these places of the set.
func (a *attempt) agents(places []int) (ids []wire.AgentID) {
	for _, k := range places {
		ids = append(ids, a.set[k].Agent)
	}
	return ids
}

// try folds a set. The error is that an update, or the held-out data, cannot be read.
func (w *modelState) try(run wire.RunID, spool packed, e round.Fold, set []round.Contribution,
	lengths []float64) (*attempt, error) {
	a := &attempt{set: set, lengths: lengths, spread: math.NaN()}
	var err error
	if a.state, err = w.state(run, e.Plan.Version, e.Plan.Base.Hash); err != nil {
		return nil, err
	}
	if err := w.foldInto(a, w.updatesOf(spool, set), e.Plan.Scale()); err != nil || a.fault != nil {
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

// foldInto makes the model of an attempt from its updates, strip by strip: where the rule has weighed the updates, each
// coordinate depends on itself alone. Neither model is ever there as a vector.
func (w *modelState) foldInto(a *attempt, u *updates, scale float64) error {
	by, d, v, mean := w.cfg.Round.Rule(), make([]float64, min(strip, u.d)), make([]float32, min(strip, u.d)), 0.0
	a.model = make([]byte, 0, len(w.base.data))
	o, fold := optimizer.New(w.cfg.Round.ServerOptimizer), rule.New[float32](by)
	own := len(o.State())
	steps, kept := a.state[:own], a.state[own:]
	set := rule.Set[float32]{Scale: scale, State: kept, Source: u}
	for _, x := range a.set {
		set.Shares = append(set.Shares, x.Share)
	}
	var err error
	if a.weighed, err = fold.Weigh(&set); err != nil {
		return err
	}
	err = u.strips(func(from, to int) error {
		d, v, state := d[:to-from], v[:to-from], make([][]float64, len(steps))
		for i, s := range steps {
			state[i] = s[from:to]
		}
		if err := fold.Fold(d, &set, from); err != nil {
			return err
		}
		mean = addMean(mean, a.set, d, scale)
		a.fold = round.AddSquares(a.fold, d)
		o.Step(d, state)
		a.step = round.AddSquares(a.step, d)
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
	a.fold, a.step = math.Sqrt(a.fold), math.Sqrt(a.step)
	return err
}

func (w *modelState) updatesOf(spool packed, set []round.Contribution) *updates {
	return &updates{packed: spool, set: set, d: len(w.base.data) / 4}
}

// without returns the lengths without those at these places.
func without(lengths []float64, places []int) (rest []float64) {
	for k, l := range lengths {
		if !slices.Contains(places, k) {
			rest = append(rest, l)
		}
	}
	return rest
}

// longest is the place of the longest update, the first of equals.
func longest(lengths []float64) int { return slices.Index(lengths, slices.Max(lengths)) }
