package fold_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/lab/fold"
	"github.com/fedmesh/fedmesh/round/rule"
)

// five contains five updates with norms 1, 1, 2, 100 and NaN.
const five = `{"updates": [
	{"agent": "a", "values": [1, 0]}, {"agent": "b", "values": [0, 1], "times": 2}, {"agent": "c", "values": [2, 0]},
	{"agent": "d \"NaN\"", "values": [0, -100]}, {"agent": "e", "values": [0.5, NaN]},
	{"agent": "f", "values": [1, 1]}]}`

func run(t *testing.T, text string, c rule.Config, asJSON bool) (string, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "updates.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	err := fold.Run(fold.Options{Rule: c, Seed: 1, Updates: path, JSON: asJSON, Stdout: &out})
	return out.String(), err
}

// TestFold aggregates six updates. One of them was drawn twice, and the sixth is not finite.
func TestFold(t *testing.T) {
	for _, tt := range []struct {
		c         rule.Config
		aggregate []float64
		left      string // expected agents whose updates are excluded, with the reasons
		clipped   string
	}{
		{rule.Config{Rule: rule.Mean}, []float64{4. / 6, -97. / 6}, "e not_finite", ""},
		{rule.Config{Rule: rule.Mean, RefuseAboveFactor: 10}, []float64{4. / 5, 3. / 5},
			`d "NaN" refuse_above e not_finite`, ""},
		{rule.Config{Rule: rule.Mean, ClipAboveFactor: 2}, []float64{4. / 6, (3 - 2*math.Sqrt2) / 6}, "e not_finite",
			fmt.Sprintf(`d "NaN" clip_above 100 %v`, 2*math.Sqrt2)},
		{rule.Config{Rule: rule.Mean, ClipNorm: 1}, []float64{(2 + math.Sqrt(0.5)) / 6, (1 + math.Sqrt(0.5)) / 6},
			"e not_finite", fmt.Sprintf(`c clip 2 1 d "NaN" clip 100 1 f clip %v 1`, math.Sqrt2)},
		{rule.Config{Rule: rule.Median}, []float64{0.5, 0.5}, "e not_finite", ""},
		{rule.Config{Rule: rule.TrimmedMean, TrimShare: 0.2}, []float64{2. / 4, 2. / 4}, "e not_finite", ""},
		// Agent b is drawn twice, so the smallest squared distances of its update are 0, and the next two of 1, 2, 5
		// and 101².
		{rule.Config{Rule: rule.Krum, MaxByzantineUpdates: 1}, []float64{0, 1},
			`a rule c rule d "NaN" rule e not_finite f rule`, ""},
		{rule.Config{Rule: rule.CenteredClipping, ClippingRadius: 2}, []float64{4. / 6, 1. / 6}, "e not_finite",
			`d "NaN" radius 100 2`},
	} {
		text, err := run(t, five, tt.c, true)
		if err != nil {
			t.Errorf("%+v: %v", tt.c, err)
			continue
		}
		var got struct {
			Aggregate, State []float64
			Draws            int
			Left             []struct{ Agent, Reason string } `json:"left_out"`
			Clipped          []struct {
				Agent, Reason string
				Norm, Counted float64
			}
		}
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Fatal(err)
		}
		var left, clipped []string
		for _, x := range got.Left {
			left = append(left, x.Agent, x.Reason)
		}
		for _, x := range got.Clipped {
			clipped = append(clipped, x.Agent, x.Reason, fmt.Sprint(x.Norm), fmt.Sprint(x.Counted))
		}
		near := slices.EqualFunc(got.Aggregate, tt.aggregate, func(a, b float64) bool { return math.Abs(a-b) < 1e-12 })
		if !near || strings.Join(left, " ") != tt.left || strings.Join(clipped, " ") != tt.clipped {
			t.Errorf("%+v: %s\nwant %v, left out %s, clipped %s", tt.c, text, tt.aggregate, tt.left, tt.clipped)
		}
		if keeps := tt.c.Rule == rule.CenteredClipping; keeps != slices.Equal(got.State, got.Aggregate) {
			t.Errorf("%+v: state %v", tt.c, got.State)
		}
	}
}

// TestState checks that the rule centred clipping starts with the state in the file.
func TestState(t *testing.T) {
	text, err := run(t, `{"updates": [{"agent": "a", "values": [5]}], "state": [2]}`,
		rule.Config{Rule: rule.CenteredClipping, ClippingRadius: 0.5}, false)
	want := "centered_clipping of 1 draws: [2.5]\na clipped: radius, norm 0.5 instead of 3\n"
	if err != nil || text != want {
		t.Errorf("%q, error %v, want %q", text, err, want)
	}
}

// TestTooFew checks that the result reports an abandoned round if there are too few updates.
func TestTooFew(t *testing.T) {
	text, err := run(t, five, rule.Config{Rule: rule.Krum, MaxByzantineUpdates: 2}, true)
	if want := "too few updates for the aggregation rule krum: the round has 6 updates, but at least 7 are " +
		"required"; fmt.Sprint(err) != want ||
		!strings.Contains(text, `"aggregate":[]`) || !strings.Contains(text, `"abandoned":"rule"`) {
		t.Errorf("%s, error %v, want %s", text, err, want)
	}
}

func TestRefused(t *testing.T) {
	for text, want := range map[string]string{
		`{}`:                          "updates: want at least one update",
		`{"updates": [{"agent": 1}]}`: "cannot unmarshal",
		`{"updates": [{"agent": "a", "value": [1]}]}`:   `unknown field "value"`,
		`{"updates": [{"agent": "", "values": [1]}]}`:   "updates[0].agent: want an agent id, but it is empty",
		`{"updates": [{"agent": "a", "values": [""]}]}`: `"" is not a number`,
		`{"updates": [{"agent": "a", "values": [1]}, {"agent": "a", "values": [1]}]}`: "updates[1].agent: duplicate " +
			"agent a",
		`{"updates": [{"agent": "a", "values": [1]}, {"agent": "b", "values": [1, 2]}]}`: "updates[1].values: got 2 " +
			"numbers, want 1 as in updates[0].values",
		`{"updates": [{"agent": "a", "values": [1], "times": 0}]}`:      "updates[0].times: got 0",
		`{"updates": [{"agent": "a", "values": [1], "weight": 0}]}`:     "updates[0].weight: got 0",
		`{"updates": [{"agent": "a", "values": [1]}], "state": [1, 2]}`: "state: got 2 numbers, want 1",
		`{"updates": [{"agent": "a", "values": [1]}], "state": [NaN]}`:  "state[0]: got NaN",
	} {
		if _, err := run(t, text, rule.DefaultConfig(), true); !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%s: error %v, want %s", text, err, want)
		}
	}
	for _, name := range []string{rule.Median, rule.TrimmedMean, rule.Krum} {
		_, err := run(t, `{"updates": [{"agent": "a", "values": [1], "weight": 2}]}`, rule.Config{Rule: name}, true)
		if !strings.Contains(fmt.Sprint(err), "the rule ignores the agents' weights") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}
