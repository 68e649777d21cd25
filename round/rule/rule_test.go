package rule_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/round/rule"
	"github.com/fedmesh/fedmesh/spec"
)

// TestTrimmedMeanByHand compares results of the trimmed mean with values computed by hand. The updates include one
// whose agent was drawn twice, and weights that must have no effect.
func TestTrimmedMeanByHand(t *testing.T) {
	rows := rule.InMemoryUpdates[float64]{{1, 100}, {2, -100}, {3, 1}, {4, 2}, {1000, 3}}
	set := rule.UpdateSet[float64]{UpdateScale: 1, UpdateReader: rows}
	for range rows {
		set.Updates = append(set.Updates, rule.UpdateMetadata{DrawCount: 1, ContributionFactor: 17})
	}
	c := rule.Config{Rule: rule.TrimmedMean, TrimShare: 0.2}
	if got := fold(t, c, set, 2); !slices.Equal(got, []float64{3, 2}) {
		t.Errorf("got %v", got)
	}
	set.Updates[4].DrawCount = 2 // The values are 1 2 3 4 1000 1000; the rule removes one value at each end.
	if got := fold(t, c, set, 2); !slices.Equal(got, []float64{(2 + 3 + 4 + 1000) / 4., (1 + 2 + 3 + 3) / 4.}) {
		t.Errorf("got %v", got)
	}
}

// drawn returns a set of updates with the given numbers of draws, in the order of agent ids and with equal weights.
func drawn(times []int, rows ...[]float64) rule.UpdateSet[float64] {
	set := rule.UpdateSet[float64]{UpdateScale: 1, UpdateReader: rule.InMemoryUpdates[float64](rows)}
	for k, v := range rows {
		squares := 0.0
		for _, x := range v {
			squares += x * x
		}
		set.Updates = append(set.Updates, rule.UpdateMetadata{AgentIDRank: k, DrawCount: times[k],
			ContributionFactor: float64(times[k]),
			Norm:               math.Sqrt(squares)})
	}
	return set
}

// TestByHand compares results with values computed by hand, including ties, even numbers of values, and agents that
// were drawn twice.
func TestByHand(t *testing.T) {
	ones := func(n int) []int { return slices.Repeat([]int{1}, n) }
	line := func(x ...float64) (rows [][]float64) {
		for _, v := range x {
			rows = append(rows, []float64{v})
		}
		return rows
	}
	for _, tt := range []struct {
		name string
		c    rule.Config
		set  rule.UpdateSet[float64]
		want []float64
		out  []int
	}{
		{"the middle one", rule.Config{Rule: rule.Median}, drawn(ones(3), line(9, -1, 2)...), []float64{2}, nil},
		{"the middle two", rule.Config{Rule: rule.Median}, drawn(ones(4), line(9, -1, 2, 3)...), []float64{2.5}, nil},
		{"two of one value", rule.Config{Rule: rule.Median}, drawn(ones(4), line(7, 1, 1, 0)...), []float64{1}, nil},
		{"one drawn twice", rule.Config{Rule: rule.Median}, drawn([]int{1, 1, 2}, line(0, 1, 5)...), []float64{3}, nil},
		{"alone", rule.Config{Rule: rule.Median}, drawn(ones(1), line(4)...), []float64{4}, nil},
		// The sums of squared distances to the two nearest updates are 5, 2, 2, 2, 5.
		{"krum: the lowest id of three", rule.Config{Rule: rule.Krum, MaxByzantineUpdates: 1},
			drawn(ones(5), line(0, 1, 2, 3, 4)...), []float64{1}, []int{0, 2, 3, 4}},
		{"krum: the ids in another order", rule.Config{Rule: rule.Krum, MaxByzantineUpdates: 1},
			drawn(ones(5), line(4, 3, 2, 1, 0)...), []float64{3}, []int{0, 2, 3, 4}},
		{"krum of alike ones", rule.Config{Rule: rule.Krum}, drawn(ones(3), line(7, 7, 7)...), []float64{7},
			[]int{1, 2}},
		// The values are 0, 0, 1, 2, 10; their sums of squared distances to the two nearest values are 1, 1, 2, 5, 145.
		{"krum: drawn twice counts twice", rule.Config{Rule: rule.Krum, MaxByzantineUpdates: 1},
			drawn([]int{1, 2, 1, 1}, line(10, 0, 1, 2)...), []float64{0}, []int{0, 2, 3}},
		{"multi-krum", rule.Config{Rule: rule.MultiKrum, MaxByzantineUpdates: 1, AveragedUpdates: 2}, drawn(ones(5),
			line(0, 1,
				2, 3, 4)...),
			[]float64{1.5}, []int{0, 3, 4}},
		{"multi-krum: drawn twice counts twice", rule.Config{Rule: rule.MultiKrum, MaxByzantineUpdates: 1,
			AveragedUpdates: 3},
			drawn([]int{1, 2, 1, 1}, line(10, 0, 1, 2)...), []float64{1. / 3}, []int{0, 3}},
		{"multi-krum: of the last only one of two", rule.Config{Rule: rule.MultiKrum, MaxByzantineUpdates: 1,
			AveragedUpdates: 1},
			drawn([]int{1, 2, 1, 1}, line(10, 3, 1, 2)...), []float64{3}, []int{0, 2, 3}},
		{"geometric median, with two of one place and one drawn twice", rule.Config{Rule: rule.GeometricMedian},
			drawn([]int{1, 1, 2, 1}, []float64{1, 0}, []float64{1, 0}, []float64{0, 2}, []float64{-3, 1}),
			[]float64{0.18160175276684823, 1.0708055925820834}, nil},
		{"geometric median of alike ones", rule.Config{Rule: rule.GeometricMedian}, drawn(ones(2), line(5, 5)...),
			[]float64{5}, nil},
	} {
		got, w, err := folded(tt.c, &tt.set, len(tt.want), len(tt.want))
		for j := range tt.want {
			if err != nil || math.Abs(got[j]-tt.want[j]) > 1e-14 || !slices.Equal(w.ExcludedIndices, tt.out) {
				t.Errorf("%s: %v without %v, error %v; want %v without %v", tt.name, got, w.ExcludedIndices, err,
					tt.want, tt.out)
			}
		}
	}
}

// TestCenteredClippingByHand aggregates the updates (3, 4) and (0, 1) with the clipping radius 1 in three rounds,
// starting from 0.
func TestCenteredClippingByHand(t *testing.T) {
	set := drawn([]int{1, 1}, []float64{3, 4}, []float64{0, 1})
	for i, want := range []struct {
		d   []float64
		far []int
	}{{[]float64{0.3, 0.9}, []int{0}}, {[]float64{0.4783903724021009, 1.3270407979431529}, []int{0}},
		{[]float64{0.5823018001994134, 1.5272206208997168}, []int{0}}} {
		got, w, err := folded(rule.Config{Rule: rule.CenteredClipping, ClippingRadius: 1}, &set, 2, 1)
		if err != nil || math.Abs(got[0]-want.d[0])+math.Abs(got[1]-want.d[1]) > 1e-14 ||
			!slices.Equal(w.OutsideRadiusIndices, want.far) {
			t.Errorf("round %d: %v, %+v, error %v; want %+v", i+1, got, w, err, want)
		}
	}
}

// TestTooFewForKrum checks that Krum rejects a round with fewer than 2f + 3 draws, where f is the number of malicious
// updates, and a round with fewer draws than the number of updates to average.
func TestTooFewForKrum(t *testing.T) {
	for want, c := range map[int]rule.Config{
		3: {Rule: rule.Krum}, 5: {Rule: rule.Krum, MaxByzantineUpdates: 1}, 9: {Rule: rule.MultiKrum,
			MaxByzantineUpdates: 3,
			AveragedUpdates:     2},
		6: {Rule: rule.MultiKrum, MaxByzantineUpdates: 1, AveragedUpdates: 6},
	} {
		for n := want - 1; n <= want; n++ {
			set := drawn([]int{1, n - 1}, []float64{1}, []float64{2})
			if _, _, err := folded(c, &set, 1, 1); errors.Is(err, rule.ErrTooFewUpdates) != (n < want) ||
				c.MinDraws() != want {
				t.Errorf("%+v of %d draws: error %v, least %d, want %d", c, n, err, c.MinDraws(), want)
			}
		}
	}
}

// TestCheckDraws checks that CheckDraws rejects a configuration that would abandon every round.
func TestCheckDraws(t *testing.T) {
	for draws, want := range map[int]string{0: "", 11: "",
		10: "aggregation.rule: krum requires at least 11 updates per round, but participants is 10"} {
		var k spec.ProblemList
		rule.Config{Rule: rule.Krum, MaxByzantineUpdates: 4}.CheckDraws(&k, draws)
		if err := k.Err(); err != nil && err.Error() != want || err == nil && want != "" {
			t.Errorf("%d draws: %v, want %q", draws, err, want)
		}
	}
}

func TestVectors(t *testing.T) {
	for name, want := range map[string]int{rule.Mean: 0, rule.CenteredClipping: 1, "fedavgm": 0} {
		if got := rule.StateVectorCount(name); got != want {
			t.Errorf("%s keeps %d vectors, want %d", name, got, want)
		}
	}
}

func TestMost(t *testing.T) {
	for _, tt := range []struct {
		c                   rule.Config
		usual, weight, want float64
	}{
		{rule.Config{Rule: rule.Mean}, 2, 1, 0},
		{rule.Config{Rule: rule.Mean, ClipAboveFactor: 3}, 2, 1, 6},
		{rule.Config{Rule: rule.Mean, ClipAboveFactor: 3}, 0, 1, 0}, // The usual norm is unknown.
		{rule.Config{Rule: rule.Mean, ClipAboveFactor: 3}, 2, 4, 24},
		{rule.Config{Rule: rule.Mean, ClipAboveFactor: 3, ClipNorm: 5}, 2, 1, 5},
		{rule.Config{Rule: rule.Mean, ClipAboveFactor: 3, ClipNorm: 7}, 2, 1, 6},
		{rule.Config{Rule: rule.Mean, ClipAboveFactor: 3, ClipNorm: 7}, 0, 1, 7},
		{rule.Config{Rule: rule.Median, ClipAboveFactor: 3, ClipNorm: 7}, 2, 1, 7},
		{rule.Config{Rule: rule.Median, ClipAboveFactor: 3}, 2, 1, 0},
	} {
		if got := tt.c.MaxCountedNorm(tt.usual, tt.weight); got != tt.want {
			t.Errorf("%+v, usual %v, weight %v: %v, want %v", tt.c, tt.usual, tt.weight, got, tt.want)
		}
	}
}

func TestCut(t *testing.T) {
	for _, tt := range []struct {
		trim float64
		n    int
		want int
	}{{0.2, 5, 1}, {0.2, 4, 0}, {0.2, 9, 1}, {0.2, 10, 2}, {0.1, 30, 3}, {0.29, 100, 29}, {0.49, 2, 0}, {0, 7, 0}} {
		if got := rule.Cut(tt.trim, tt.n); got != tt.want {
			t.Errorf("⌊%v·%d⌋ is %d, want %d", tt.trim, tt.n, got, tt.want)
		}
	}
}

// TestTooFewToTrim checks the error for a trim share that leaves no value.
func TestTooFewToTrim(t *testing.T) {
	c := rule.Config{Rule: rule.TrimmedMean, TrimShare: 0.5 - 1e-12}
	set := rule.UpdateSet[float64]{UpdateScale: 1, UpdateReader: rule.InMemoryUpdates[float64]{{1}, {2}},
		Updates: []rule.UpdateMetadata{{DrawCount: 1}, {DrawCount: 1}}}
	_, _, err := folded(c, &set, 1, 1)
	if want := "too few updates for the aggregation rule trimmed_mean: the round has 2 updates, but at " +
		"least 3 are required"; fmt.Sprint(err) != want {
		t.Errorf("error %q, want %q", err, want)
	}
}

func TestWarning(t *testing.T) {
	c := rule.Config{Rule: rule.TrimmedMean, TrimShare: 0.2}
	if w := c.IneffectiveKeyWarning(4); !strings.HasPrefix(w,
		"trimmed_mean would trim no values: aggregation.trim is 0.2, ") {
		t.Errorf("warning %q", w)
	}
	if w := c.IneffectiveKeyWarning(5); w != "" {
		t.Errorf("of five: %q", w)
	}
	if w := rule.DefaultConfig().IneffectiveKeyWarning(1); w != "" {
		t.Errorf("of the mean: %q", w)
	}
}

func TestAbove(t *testing.T) {
	for _, tt := range []struct {
		lengths []float64
		usual   float64
		want    []int
	}{
		{[]float64{1, 1, 100, 1}, 1, nil}, // There are too few updates to judge a norm.
		{[]float64{1, 2, 2, 3, 4.1}, 2, []int{4}},
		{[]float64{1, 2, 2, 3, 4}, 2, nil},
		{[]float64{9, 1, 2, 3, 7, 6}, 3, []int{0, 4}},
		{[]float64{0, 0, 0, 1, 2}, 0, nil}, // The usual norm is unknown.
	} {
		if got := (rule.Config{RefuseAboveFactor: 2}).ExcessiveNormIndices(tt.usual, tt.lengths); !slices.Equal(got,
			tt.want) {
			t.Errorf("%v: %v above, want %v", tt.lengths, got, tt.want)
		}
		if got := (rule.Config{}).ExcessiveNormIndices(tt.usual, tt.lengths); got != nil {
			t.Errorf("without a bound %v are above it", got)
		}
	}
}

func TestValidate(t *testing.T) {
	for _, tt := range []struct {
		c    rule.Config
		want string
	}{
		{rule.Config{Rule: "mean"}, ""}, {rule.Config{Rule: "mean", RefuseAboveFactor: 3}, ""},
		{rule.Config{Rule: "trimmed_mean", TrimShare: 0.2}, ""}, {rule.Config{Rule: "trimmed_mean"}, ""},
		{rule.Config{Rule: "average"}, "rule: want centered_clipping, geometric_median, krum, mean, median, " +
			`multi_krum or trimmed_mean, got "average"`},
		{rule.Config{Rule: "mean", TrimShare: 0.1}, "trim: is 0.1, but only the rule trimmed_mean uses this key: " +
			"remove it"},
		{rule.DefaultConfig(), ""},
		{rule.Config{Rule: "trimmed_mean", TrimShare: 0.5}, "trim: must be at least 0 and below 0.5, but is 0.5"},
		{rule.Config{Rule: "trimmed_mean", TrimShare: -0.1}, "trim: must be"},
		{rule.Config{Rule: "mean", RefuseAboveFactor: 1}, "refuse_above: must be above 1, or 0 for no limit, but is 1"},
		{rule.Config{Rule: "mean", RefuseAboveFactor: -3}, "refuse_above"},
		{rule.Config{Rule: "mean", ClipAboveFactor: 1}, ""},
		{rule.Config{Rule: "mean", ClipAboveFactor: 0.9},
			"clip_above: must be at least 1, or 0 for no limit, but is 0.9"},
		{rule.Config{Rule: "mean", ClipAboveFactor: math.Inf(1)}, "clip_above"},
		{rule.Config{Rule: "mean", ClipAboveFactor: math.NaN()}, "clip_above"},
		{rule.Config{Rule: "krum", ClipNorm: 0.01}, ""},
		{rule.Config{Rule: "mean", ClipNorm: -1}, "clip: must be finite and positive, or 0 for no limit, but is -1"},
		{rule.Config{Rule: "mean", ClipNorm: math.NaN()}, "clip"}, {rule.Config{Rule: "mean", ClipNorm: math.Inf(1)},
			"clip"},
		{rule.Config{Rule: "krum", MaxByzantineUpdates: -1}, "byzantine: must be between 0 and 1048576, but is -1"},
		{rule.Config{Rule: "median", MaxByzantineUpdates: 2},
			"byzantine: is 2, but only the rules krum and multi_krum use this key: remove it"},
		{rule.Config{Rule: "multi_krum", MaxByzantineUpdates: 2}, "keep: must be between 1 and 1048576, but is 0"},
		{rule.Config{Rule: "krum", AveragedUpdates: 2},
			"keep: is 2, but only the rule multi_krum uses this key: remove it"},
		{rule.Config{Rule: "centered_clipping"}, "radius: must be finite and positive, but is 0"},
		{rule.Config{Rule: "centered_clipping", ClippingRadius: math.Inf(1)},
			"radius: must be finite and positive, but is +Inf"},
		{rule.Config{Rule: "mean", ClippingRadius: 1}, "radius: is 1, but only the rule centered_clipping uses this " +
			"key: remove it"},
	} {
		if err := tt.c.Validate(); (err == nil) != (tt.want == "") || !strings.Contains(fmt.Sprint(err), tt.want) {
			t.Errorf("%+v: %v, want %q", tt.c, err, tt.want)
		}
	}
}
