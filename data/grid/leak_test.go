package grid_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/data/grid"
)

// leaks changes all readings after the time cut. It describes the first row up to cut whose features then change, or
// returns "" if no row changes.
func leaks(rows func([]grid.Reading) grid.MadeRows, all []grid.Reading, cut int64) string {
	other := slices.Clone(all)
	for i := range other {
		if r := &other[i]; r.Time > cut && r.Text == "" {
			r.Value = 900 - r.Value
		}
	}
	a, b := rows(all), rows(other)
	n := len(a.X) / len(a.Y)
	for i, at := range a.Times {
		if at > cut {
			break
		}
		if x, y := a.X[i*n:i*n+n], b.X[i*n:i*n+n]; b.Times[i] != at || !slices.Equal(x, y) {
			return fmt.Sprintf("the row at %s sees readings after it: column %d is %v, and %v with others",
				time.Unix(0, at).UTC(), differ(x, y), x, y)
		}
	}
	return ""
}

// TestNoRowSeesLaterReadings checks that the features of a row do not depend on readings after the row. It also checks
// that the test detects a deliberate error: an input whose readings are dated half an hour early.
func TestNoRowSeesLaterReadings(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	all := stream(rng, 24, 0.05)
	for i, fill := range fills {
		c := config(t, "pm in 3h", fill)
		honest := func(some []grid.Reading) grid.MadeRows { rows, _ := run(t, c, some); return rows }
		planted := func(some []grid.Reading) grid.MadeRows {
			c := c
			c.Recipe.Inputs = slices.Clone(c.Recipe.Inputs)
			for k := range c.Recipe.Inputs { // disable the plausibility checks, so that the leak is not filtered out
				c.Recipe.Inputs[k].StuckAfter, c.Recipe.Inputs[k].MaxJump = 0, 0
			}
			some = slices.Clone(some)
			for k := range some {
				if some[k].Input == "gust" {
					some[k].Time -= 30 * minute
				}
			}
			rows, _ := run(t, c, some)
			return rows
		}
		found := 0
		for h := int64(6); h < 18; h++ {
			cut := began.UnixNano() + h*60*minute
			if where := leaks(honest, all, cut); where != "" {
				t.Errorf("policy %d: %s", i, where)
			}
			if leaks(planted, all, cut) != "" {
				found++
			}
		}
		if found < 10 {
			t.Errorf("policy %d: a planted leak was found at %d of 12 moments", i, found)
		}
	}
}
