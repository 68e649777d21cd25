package reproduce

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/fedmesh/fedmesh/lab/plot"
	"github.com/fedmesh/fedmesh/lab/sim"
	"github.com/fedmesh/fedmesh/lab/wisdm"
	"github.com/fedmesh/fedmesh/round/rule"
)

// robustExperiment measures the accuracy of each aggregation rule while some devices are dishonest. It trains softmax
// regression on the activities in package wisdm. The model is tested on people who have no device.
type robustExperiment struct {
	Attackers    int      `json:"attackers"` // number of dishonest devices; there are 27 devices
	Participants int      `json:"participants"`
	Attacks      []string `json:"attacks"` // attacks to simulate; a run without attack is always added
	StepSize     float64  `json:"step_size"`
	BatchSize    int      `json:"batch_size"`
	Steps        int      `json:"local_steps"`
	Rounds       int      `json:"rounds"`
	Runs         int      `json:"runs"`
}

// defaultRobust returns the experiment `robust` with its default settings. docs/ROBUSTNESS.md contains the results.
func defaultRobust() *robustExperiment {
	return &robustExperiment{Attackers: 5, Participants: 10, StepSize: 0.1, BatchSize: 20, Steps: 5, Rounds: 100,
		Runs: 8,
		Attacks: []string{claimedAttack, "signflip:1", "constant:1e30", "noise:1", "constant:1", "alie:1.5",
			"inner:0.5",
			"labelflip"}}
}

// claimedAttack is the attack for which the experiment checks the accuracy of each rule.
const claimedAttack = "signflip:10"

// ruleCase is an aggregation rule with its settings and the accuracy that it must reach.
type ruleCase struct {
	Key  string // name of the rule in report keys
	Name string // name of the rule in the table
	rule.Config
	// minAccuracy is the accuracy that the rule must reach against claimedAttack. For the rule mean, minAccuracy is an
	// upper limit instead. Zero means that nothing is required.
	minAccuracy  float64
	mayTrailMean bool // true if the rule may be less accurate than the mean when there is no attack
}

// ruleCases returns the rows of the table in docs/ROBUSTNESS.md.
func ruleCases() []ruleCase {
	return []ruleCase{
		{"mean", "mean", rule.Config{Rule: rule.Mean}, 0.4, false},
		{"default", "mean, clip_above 3, refuse_above 100",
			rule.Config{Rule: rule.Mean, ClipAboveFactor: 3, RefuseAboveFactor: 100}, 0, false},
		{"refuse_above", "mean, refuse_above 2", rule.Config{Rule: rule.Mean, RefuseAboveFactor: 2}, 0.735, false},
		{"median", "median", rule.Config{Rule: rule.Median}, 0.63, false},
		{"median_refuse_above", "median, refuse_above 2", rule.Config{Rule: rule.Median, RefuseAboveFactor: 2}, 0.735,
			false},
		{"trimmed_mean", "trimmed_mean, trim 0.3", rule.Config{Rule: rule.TrimmedMean, TrimShare: 0.3}, 0.63, false},
		{"krum", "krum, byzantine 3", rule.Config{Rule: rule.Krum, MaxByzantineUpdates: 3}, 0, true},
		{"multi_krum_2", "multi_krum, byzantine 2, keep 6",
			rule.Config{Rule: rule.MultiKrum, MaxByzantineUpdates: 2, AveragedUpdates: 6}, 0, true},
		{"multi_krum_3", "multi_krum, byzantine 3, keep 6",
			rule.Config{Rule: rule.MultiKrum, MaxByzantineUpdates: 3, AveragedUpdates: 6}, 0, true},
		{"geometric_median", "geometric_median", rule.Config{Rule: rule.GeometricMedian}, 0.63, false},
		{"centered_0.3", "centered_clipping, radius 0.3", rule.Config{Rule: rule.CenteredClipping,
			ClippingRadius: 0.3}, 0.63,
			false},
		{"centered_0.1", "centered_clipping, radius 0.1", rule.Config{Rule: rule.CenteredClipping,
			ClippingRadius: 0.1}, 0.68,
			false},
	}
}

// About implements Experiment.
func (b *robustExperiment) About() About {
	return About{"robust", "If devices send reversed updates of ten times the length, robust rules and refuse_above " +
		"preserve the accuracy that the mean loses. No rule withstands every attack.",
		"Yin et al. 2018; Blanchard et al. 2017; Pillutla et al. 2022; Karimireddy et al. 2021"}
}

// Run implements Experiment. A quick run uses only the claimed attack.
func (b *robustExperiment) Run(ctx context.Context, o Options) (*Report, error) {
	r := &Report{About: b.About()}
	problem, err := wisdm.Problem()
	if err != nil {
		return nil, err
	}
	figure := plot.Figure{Title: fmt.Sprintf("%d of %d devices send their update × −10", b.Attackers, problem.Agents),
		X: plot.Axis{Label: "round i"}, Y: plot.Axis{Label: "accuracy on people without a device"}}
	attacks := b.Attacks
	if o.Quick {
		attacks = []string{claimedAttack}
	}
	clean := map[string]estimate{}
	for _, attack := range append([]string{""}, attacks...) {
		for _, c := range ruleCases() {
			e := b.experiment(o, c.Config, attack)
			got, err := sim.RunInstances(ctx, e,
				func(int) (sim.Instance[float32], error) { return sim.Instance[float32]{Problem: problem}, nil }, nil)
			if got == nil {
				return nil, fmt.Errorf("robust: %s, %s: %w", attack, c.Key, err)
			}
			a := estimate{math.NaN(), math.NaN()} // undefined if a run diverges
			if err == nil {
				a = measured(got.Steady("accuracy", b.Rounds))
			}
			r.Values.Set(keyOf(attack, c.Key), a.mean)
			r.Values.Set(keyOf(attack, c.Key)+"_ci95", a.halfWidth)
			if attack == "" {
				clean[c.Key] = a
			}
			b.judge(r, attack, c, a, clean)
			if attack == claimedAttack {
				figure.Curves = append(figure.Curves, curveOf("accuracy", c.Name, got))
			}
		}
	}
	r.figure("robust", figure)
	return r, nil
}

// keyOf returns the key of an attack and a rule, such as "none_median" or "signflip:10_median".
func keyOf(attack, rule string) string {
	if attack == "" {
		attack = "none"
	}
	return attack + "_" + rule
}

func (b *robustExperiment) experiment(o Options, by rule.Config, attack string) sim.Experiment {
	e := sim.Default()
	e.Seed, e.Runs, e.Rounds, e.Record = o.Seed, o.fullOrQuickCount(b.Runs, 4), b.Rounds, max(1, b.Rounds/20)
	e.Precision, e.Participants.Count = sim.Float32, b.Participants
	e.LocalSteps, e.BatchSize = sim.Each(float64(b.Steps)), sim.Each(float64(b.BatchSize))
	e.StepSize.Constant, e.StepSize.NormalizesStepSize = b.StepSize, false
	e.Aggregation = by
	if attack != "" {
		e.Attack, e.Attackers = attack, b.Attackers
	}
	return e
}

// judge checks the accuracy of a rule. Without an attack it may be at most 0.02 below the accuracy of the mean, and
// against claimedAttack it must be at least minAccuracy.
func (b *robustExperiment) judge(r *Report, attack string, c ruleCase, a estimate, clean map[string]estimate) {
	what := fmt.Sprintf("%s: accuracy", c.Name)
	switch {
	case attack == "" && !c.mayTrailMean && c.Key != "mean":
		mean := clean["mean"]
		r.find(Finding{What: what + " without attackers", Measured: a.String(),
			Expected: fmt.Sprintf("at least %.4g (mean) − 0.02", mean.mean),
			Holds:    a.mean >= mean.mean-0.02})
	case attack == claimedAttack && c.Key == "mean":
		r.find(Finding{What: what + " against " + attack, Measured: a.String(),
			Expected: fmt.Sprintf("at most %.4g", c.minAccuracy), Holds: a.mean <= c.minAccuracy})
	case attack == claimedAttack && c.minAccuracy > 0:
		r.find(Finding{What: what + " against " + attack, Measured: a.String(),
			Expected: fmt.Sprintf("at least %.4g", c.minAccuracy), Holds: a.mean >= c.minAccuracy})
	}
}

// curveOf returns the curve of a metric over the rounds.
func curveOf(metric, name string, r *sim.Result) plot.Curve {
	c, m := plot.Curve{Name: name}, r.Metric(metric)
	for i, round := range r.Rounds {
		if i < len(m.Mean) && !math.IsNaN(m.Mean[i]) {
			c.X, c.Y = append(c.X, float64(round)), append(c.Y, m.Mean[i])
		}
	}
	return c
}

// RobustTable returns the table of docs/ROBUSTNESS.md, with a row for each rule and a column for each attack.
func RobustTable(r *Report) string {
	b := defaultRobust()
	var s strings.Builder
	fmt.Fprintf(&s, "| rule | no attack | %s |\n|---|---%s|\n", strings.Join(b.Attacks, " | "),
		strings.Repeat("|---", len(b.Attacks)))
	for _, c := range ruleCases() {
		fmt.Fprintf(&s, "| %s |", c.Name)
		for _, attack := range append([]string{""}, b.Attacks...) {
			mean, _ := r.Values.Get(keyOf(attack, c.Key))
			half, _ := r.Values.Get(keyOf(attack, c.Key) + "_ci95")
			if math.IsNaN(mean) {
				s.WriteString(" diverges |")
			} else {
				fmt.Fprintf(&s, " %.3f ± %.3f |", mean, half)
			}
		}
		s.WriteString("\n")
	}
	return s.String()
}
