package survey

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestSentinels checks for which columns AddSentinelFault adds a fault, and the advice in the fault.
func TestSentinels(t *testing.T) {
	repeat := func(v float64, n int) []float64 { return slices.Repeat([]float64{v}, n) }
	outdoor := []float64{-9.5, 3, 12.25, 20, 31, 35, 8, 8, 8, 8}
	for _, tt := range []struct {
		name   string
		values []float64
		want   string // problem and remedy; "" means no fault
	}{
		{"a failed probe", slices.Concat(outdoor, repeat(-127, 3)), "3 × -127 is far outside the other values, which " +
			"are mostly from -9.5 to 31; if it means a missing value, set data.missing_values: [-127]"},
		{"twice only", slices.Concat(outdoor, repeat(-127, 2)), ""},
		{"once each", slices.Concat(outdoor, []float64{-127, -126, -125}), ""},
		{"an overflow", slices.Concat(repeat(65535, 4), outdoor), "4 × 65535 is far outside the other values, which " +
			"are mostly from 3 to 35; if it means a missing value, set data.missing_values: [65535]"},
		{"near the others", slices.Concat(outdoor, repeat(80, 3)), ""},
		{"mostly one value", slices.Concat(repeat(-999, 20), outdoor), ""},
		{"a machine that is off", slices.Concat(repeat(0, 4), []float64{2000, 2010, 2020, 2030, 2040, 2050}), ""},
		{"a switch", slices.Concat(repeat(0, 4), repeat(1, 9)), ""},
		{"a constant", repeat(4, 9), ""},
		{"nothing", nil, ""},
	} {
		var s SourceSurvey
		c := NewColumnSurvey("a")
		for _, v := range tt.values {
			c.NumberStats.AddValue(v)
		}
		s.AddSentinelFault(c)
		var got []string
		for _, f := range s.Faults {
			got = append(got, fmt.Sprintf("%d × %s; %s", f.Count, f.FirstFaults[0].Problem, f.Remedy))
		}
		if strings.Join(got, "|") != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
