// Package fold aggregates the updates in a file by the rules and bounds of a coordinator, so that aggregates can be
// checked by hand. docs/SIMULATION.md describes the formats of the file and of the output.
package fold

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"sort"

	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/rule"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// Options are the flags of the command.
type Options struct {
	Rule    rule.Config
	Seed    uint64 // seed of the run; it determines the order of summation
	Updates string // path of the input file with the updates
	JSON    bool
	Stdout  io.Writer
}

// result is the output of the command.
type result struct {
	Rule      string    `json:"rule"`
	Draws     int       `json:"draws"` // number of draws of the accepted updates
	Aggregate []float64 `json:"aggregate"`
	LeftOut   []leftOut `json:"left_out"`
	Clipped   []clipped `json:"clipped"`
	// MedianNorm is the median norm of the updates. For an even number of updates, it is the smaller of the two middle
	// norms. The settings refuse_above and clip_above are multiples of MedianNorm. MedianNorm is 0 for fewer than 3
	// updates.
	MedianNorm float64   `json:"usual"`
	State      []float64 `json:"state,omitempty"` // state that the aggregation rule keeps for the next round
	// Abandoned is the reason why the round has no aggregate. Abandoned is empty if there is an aggregate.
	Abandoned string `json:"abandoned,omitempty"`
}

// leftOut describes an update that was excluded from the aggregate.
type leftOut struct {
	Agent  wire.AgentID `json:"agent"`
	Reason string       `json:"reason"`         // not_finite, refuse_above or rule
	Norm   *float64     `json:"norm,omitempty"` // norm of the update; nil if the update is not finite
}

// clipped is an update whose norm was clipped.
type clipped struct {
	Agent  wire.AgentID `json:"agent"`
	Reason string       `json:"reason"` // setting that reduced the norm: clip, clip_above or radius
	// Norm and ClippedNorm are the norms before and after clipping. If Reason is radius, Norm is the distance from the
	// previous aggregate.
	Norm        float64 `json:"norm"`
	ClippedNorm float64 `json:"counted"`
}

// Run aggregates the updates and prints the result. It returns an error for an invalid file or flag, or
// [rule.ErrTooFewUpdates].
func Run(o Options) error {
	f, err := read(o.Updates)
	if err == nil {
		err = o.validate(f)
	}
	if err != nil {
		return err
	}
	r, err := f.fold(&o)
	if err != nil && !errors.Is(err, rule.ErrTooFewUpdates) {
		return err
	}
	if err != nil {
		r.Abandoned = string(round.AbandonTooFewForRule)
	}
	if o.JSON {
		return errors.Join(json.NewEncoder(o.Stdout).Encode(r), err)
	}
	r.print(o.Stdout)
	return err
}

// validate checks the flags, and their compatibility with the file.
func (o *Options) validate(f *foldInput) error {
	var k spec.ProblemList
	k.AddSectionErrors("", o.Rule.Validate())
	weights := spec.WeightsEqual
	for i := range f.Updates {
		if f.Updates[i].weight() != 1 {
			weights = spec.WeightsSamples
		}
	}
	spec.ChosenOptions{spec.OptionAggregationRule: o.Rule.Rule,
		spec.OptionAgentWeights: string(weights)}.CheckIncompatibilities(&k,
		spec.InBothFiles,
		map[spec.OptionName]string{spec.OptionAggregationRule: "rule",
			spec.OptionAgentWeights: "weight in the updates file, equivalent to weights:"})
	return k.Err()
}

// fold aggregates the updates as a coordinator does, in float64.
func (f *foldInput) fold(o *Options) (*result, error) {
	r := &result{Rule: o.Rule.Rule, Aggregate: []float64{}, LeftOut: []leftOut{}, Clipped: []clipped{}}
	rows := map[wire.AgentID][]float64{}
	var accepted []round.Participant
	for i := range f.Updates {
		u := &f.Updates[i]
		v, norm := floats(u.Values), 0.0
		if norm = math.Sqrt(learner.AddSquares(0, v)); norm-norm != 0 {
			r.LeftOut = append(r.LeftOut, leftOut{u.Agent, "not_finite", nil})
			continue
		}
		rows[u.Agent] = v
		accepted = append(accepted, round.Participant{Agent: u.Agent, DrawCount: u.times(), Weight: u.weight(),
			UpdateNorm: norm})
	}
	cfg := round.Config{Seed: o.Seed, WeightPlacement: spec.WeightInServerMean}
	plan := round.Plan{Kind: wire.KindTraining, Exchange: spec.ExchangeParameters}
	all := round.BuildContributions(accepted, &plan, &cfg)
	b := plan.AssessUpdateNorms(o.Rule, false, cfg.WeightPlacement, all)
	r.MedianNorm = b.UsualNorm
	for _, k := range b.RefusedIndices {
		r.LeftOut = append(r.LeftOut, leftOut{all[k].Agent, "refuse_above", &all[k].Norm})
	}
	set, source := rule.UpdateSet[float64]{UpdateScale: plan.UpdateScale()}, rule.InMemoryUpdates[float64]{}
	for _, x := range b.KeptContributions {
		set.Updates, source = append(set.Updates, x.UpdateMetadata), append(source, rows[x.Agent])
	}
	set.UpdateReader, r.Draws = source, set.TotalDrawCount()
	return r, r.finish(o, f, &set, b.KeptContributions)
}

// finish applies the aggregation rule to the updates and adds the aggregate, the exclusions and the clipped updates to
// r.
func (r *result) finish(o *Options, f *foldInput, set *rule.UpdateSet[float64], of []round.Contribution) error {
	by := rule.New[float64](o.Rule)
	set.RuleState = rule.NewState(by, f.length)
	for _, v := range set.RuleState {
		copy(v, floats(f.State))
	}
	w, err := by.AssessUpdates(set)
	if err != nil {
		return err
	}
	for _, k := range w.ExcludedIndices {
		r.LeftOut = append(r.LeftOut, leftOut{of[k].Agent, "rule", &of[k].Norm})
	}
	for _, x := range of {
		if reason := o.Rule.BoundingConfigKey(&x.UpdateMetadata); reason != "" {
			r.Clipped = append(r.Clipped, clipped{x.Agent, reason, x.Norm, x.ClippedNorm()})
		}
	}
	for i, k := range w.OutsideRadiusIndices {
		r.Clipped = append(r.Clipped, clipped{of[k].Agent, "radius", w.OutsideRadiusDistances[i],
			o.Rule.ClippingRadius})
	}
	sort.SliceStable(r.LeftOut, func(i, j int) bool { return r.LeftOut[i].Agent < r.LeftOut[j].Agent })
	sort.SliceStable(r.Clipped, func(i, j int) bool { return r.Clipped[i].Agent < r.Clipped[j].Agent })
	r.Aggregate = make([]float64, f.length)
	if err := by.AggregatePart(r.Aggregate, set, 0); err != nil {
		return err
	}
	for _, v := range set.RuleState {
		r.State = v
	}
	for j, x := range r.Aggregate {
		if x-x != 0 {
			return fmt.Errorf("element %d of the aggregate is %v", j, x)
		}
	}
	return nil
}

func (r *result) print(w io.Writer) {
	if r.Abandoned == "" {
		fmt.Fprintf(w, "%s of %d draws: %v\n", r.Rule, r.Draws, r.Aggregate)
	}
	for _, x := range r.LeftOut {
		fmt.Fprintf(w, "%s excluded: %s", x.Agent, x.Reason)
		if x.Norm != nil {
			fmt.Fprintf(w, ", norm %.6g, median norm %.6g", *x.Norm, r.MedianNorm)
		}
		fmt.Fprintln(w)
	}
	for _, x := range r.Clipped {
		fmt.Fprintf(w, "%s clipped: %s, norm %.6g instead of %.6g\n", x.Agent, x.Reason, x.ClippedNorm, x.Norm)
	}
}

func read(path string) (*foldInput, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	f, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}
