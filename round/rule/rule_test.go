package rule_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/round/rule"
)

// TestTrimmedMeanByHand: values by hand, an agent that was drawn twice, and weights that play no part.
func TestTrimmedMeanByHand(t *testing.T) {
	rows := rule.Memory[float64]{{1, 100}, {2, -100}, {3, 1}, {4, 2}, {1000, 3}}
	set := rule.Set[float64]{Scale: 1, Source: rows}
	for range rows {
		set.Shares = append(set.Shares, rule.Share{Times: 1, Factor: 17})
	}
	c := rule.Config{Rule: rule.TrimmedMean, Trim: 0.2}
	if got := fold(t, c, set, 2); !slices.Equal(got, []float64{3, 2}) { // (2+3+4)/3, (1+2+3)/3
		t.Errorf("got %v", got)
	}
	set.Shares[4].Times = 2 // 1 2 3 4 1000 1000: one is cut at each end
	if got := fold(t, c, set, 2); !slices.Equal(got, []float64{(2 + 3 + 4 + 1000) / 4., (1 + 2 + 3 + 3) / 4.}) {
		t.Errorf("got %v", got)
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

// TestTooFewToTrim: no value is left where as many are cut as there are.
func TestTooFewToTrim(t *testing.T) {
	c := rule.Config{Rule: rule.TrimmedMean, Trim: 0.5 - 1e-12} // cuts one of two at each end
	set := rule.Set[float64]{Scale: 1, Source: rule.Memory[float64]{{1}, {2}},
		Shares: []rule.Share{{Times: 1}, {Times: 1}}}
	err := rule.New[float64](c).Fold(make([]float64, 1), set)
	if want := "too few updates for the rule trimmed_mean: 2 draws, want at least 3"; fmt.Sprint(err) != want {
		t.Errorf("error %q, want %q", err, want)
	}
}

func TestWarning(t *testing.T) {
	c := rule.Config{Rule: rule.TrimmedMean, Trim: 0.2}
	if w := c.Warning(4); !strings.HasPrefix(w, "trimmed_mean cuts nothing: aggregation.trim is 0.2, ") {
		t.Errorf("warning %q", w)
	}
	if w := c.Warning(5); w != "" {
		t.Errorf("of five: %q", w)
	}
	if w := rule.DefaultConfig().Warning(1); w != "" {
		t.Errorf("of the mean: %q", w)
	}
}

func TestAbove(t *testing.T) {
	for _, tt := range []struct {
		lengths []float64
		usual   float64
		want    []int
	}{
		{[]float64{1, 1, 100, 1}, 1, nil}, // too few to tell
		{[]float64{1, 2, 2, 3, 4.1}, 2, []int{4}},
		{[]float64{1, 2, 2, 3, 4}, 2, nil},
		{[]float64{9, 1, 2, 3, 7, 6}, 3, []int{0, 4}},
		{[]float64{0, 0, 0, 1, 2}, 0, nil}, // nothing can be told
	} {
		if got := (rule.Config{RefuseAbove: 2}).Above(tt.usual, tt.lengths); !slices.Equal(got, tt.want) {
			t.Errorf("%v: %v above, want %v", tt.lengths, got, tt.want)
		}
		if got := (rule.Config{}).Above(tt.usual, tt.lengths); got != nil {
			t.Errorf("without a bound %v are above it", got)
		}
	}
}

func TestValidate(t *testing.T) {
	for _, tt := range []struct {
		c    rule.Config
		want string
	}{
		{rule.Config{Rule: "mean"}, ""}, {rule.Config{Rule: "mean", RefuseAbove: 3}, ""},
		{rule.Config{Rule: "trimmed_mean", Trim: 0.2}, ""}, {rule.Config{Rule: "trimmed_mean"}, ""},
		{rule.Config{Rule: "average"}, `rule: want mean or trimmed_mean, got "average"`},
		{rule.Config{Rule: "mean", Trim: 0.1}, "trim: is 0.1; it goes with the rule trimmed_mean only"},
		{rule.DefaultConfig(), ""},
		{rule.Config{Rule: "trimmed_mean", Trim: 0.5}, "trim: must be at least 0 and below 0.5, is 0.5"},
		{rule.Config{Rule: "trimmed_mean", Trim: -0.1}, "trim: must be"},
		{rule.Config{Rule: "mean", RefuseAbove: 1}, "refuse_above: must be above 1, or 0 for none, is 1"},
		{rule.Config{Rule: "mean", RefuseAbove: -3}, "refuse_above"},
		{rule.Config{Rule: "mean", Clip: 1}, ""},
		{rule.Config{Rule: "mean", Clip: 0.9}, "clip: must be at least 1, or 0 for any length, is 0.9"},
		{rule.Config{Rule: "mean", Clip: math.Inf(1)}, "clip"}, {rule.Config{Rule: "mean", Clip: math.NaN()}, "clip"},
	} {
		if err := tt.c.Validate(); (err == nil) != (tt.want == "") || !strings.Contains(fmt.Sprint(err), tt.want) {
			t.Errorf("%+v: %v, want %q", tt.c, err, tt.want)
		}
	}
}
