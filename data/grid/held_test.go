package grid_test

import (
	"cmp"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/spec"
)

// TestHeldInput checks a sensor that reports only changes of its value. Features, windows and targets must use its last
// value up to the maximum age, unless the device is offline.
func TestHeldInput(t *testing.T) {
	c := grid.RowBuilderConfig{
		Recipe: spec.RowRecipe{Grid: spec.TimeGrid{Step: time.Hour}, Inputs: []spec.InputSeries{
			{Name: "level", Resampling: spec.ResampleHeld, MaxAge: 150 * time.Minute}, {Name: "other"},
		}}.WithDefaults(),
		ExpandedFeatures: []string{"level", "level mean 2h"}, Target: "level in 1h",
	}
	at := func(hours float64) int64 { return 1000*60*minute + int64(hours*60*float64(minute)) }
	came := []grid.Reading{
		{Input: "level", Time: at(0.5), Value: 10},
		{Input: "level", Time: at(1.5), Value: 20},  // the value of points 2 to 4
		{Input: "level", Time: at(5.75), Value: 30}, // the value of points 6 and 7
		{Input: "level", Time: at(7.5), Text: "unavailable", Value: math.NaN()},
		{Input: "level", Time: at(8.5), Value: 40}, // the value of points 9 to 11
	}
	for i := range 12 {
		came = append(came, grid.Reading{Input: "other", Time: at(float64(i) + 0.9)})
	}
	slices.SortFunc(came, func(a, b grid.Reading) int { return cmp.Compare(a.Time, b.Time) })
	got, g := run(t, c, came)
	same(t, "held", got, grid.MadeRows{
		X:     []float32{20, 15, 20, 20, 40, 40},
		Y:     []float32{20, 20, 40},
		Times: []int64{at(2), at(3), at(10)},
	})
	counts, _, _ := g.ReadingCounts()
	if gaps := counts[0].Unused[grid.ReasonGap]; gaps != 6 {
		t.Errorf("%d gaps, want 6: the rows of the points 4 to 9", gaps)
	}
}

// TestUnits checks that readings are converted to the unit of the recipe before they are checked and aggregated.
func TestUnits(t *testing.T) {
	for _, tt := range []struct {
		name, inputUnit, deviceUnit, readingUnit string
		value                                    float64
		want                                     float32
		rejected                                 grid.UnusedReason
	}{
		{"unit of the device", "°C", "°F", "", 50, 10, ""},
		{"unit of the reading", "°C", "", "degF", 50, 10, ""},
		{"the device's unit has precedence", "°C", "°F", "kPa", 50, 10, ""},
		{"same unit", "°C", "", "Cel", 10, 10, ""},
		{"no unit in the recipe", "", "°F", "kPa", 50, 50, ""},
		{"no unit known", "°C", "", "", 10, 10, ""},
		{"range after conversion", "°C", "", "°F", 140, 0, grid.ReasonOutOfRange},
		{"range before conversion", "°C", "", "°F", 41, 5, ""},
		{"other quantity", "°C", "", "kPa", 10, 0, grid.ReasonWrongUnit},
		{"unknown unit", "°C", "", "degrees of heat", 10, 0, grid.ReasonWrongUnit},
	} {
		c := grid.RowBuilderConfig{
			Recipe: spec.RowRecipe{Grid: spec.TimeGrid{Step: time.Hour}, Inputs: []spec.InputSeries{
				{Name: "t", Unit: tt.inputUnit, ValidRange: []float64{-20, 55}}, {Name: "other"},
			}}.WithDefaults(),
			ExpandedFeatures: []string{"t"},
			DeviceInputs:     map[string]grid.DeviceInput{"t": {Unit: tt.deviceUnit}},
		}
		got, g := run(t, c, []grid.Reading{
			// from this reading on, the unit is different
			{Input: "t", Time: 30 * minute, Value: 1, Unit: tt.inputUnit},
			{Input: "t", Time: 90 * minute, Value: tt.value, Unit: tt.readingUnit},
			{Input: "other", Time: 150 * minute},
		})
		counts, _, _ := g.ReadingCounts()
		if tt.rejected != "" {
			if last := counts[0].LastRejected; last.Why != tt.rejected || last.Unit != tt.readingUnit ||
				len(got.X) != 1 {
				t.Errorf("%s: rows %v, last rejected reading %+v; want the reason %s", tt.name, got.X, last,
					tt.rejected)
			}
		} else if len(got.X) != 2 || got.X[1] != tt.want || float32(counts[0].NewestValue) != tt.want {
			t.Errorf("%s: rows %v, counts %+v; want %v in the second row", tt.name, got.X, counts[0], tt.want)
		}
	}
}

// TestDeviceUnitDoesNotFit checks that no rows are made if the configured unit of an input belongs to another quantity.
func TestDeviceUnitDoesNotFit(t *testing.T) {
	c := hourly(func(c *grid.RowBuilderConfig) {
		c.Recipe.Inputs[0].Unit = "°C"
		c.DeviceInputs = map[string]grid.DeviceInput{c.Recipe.Inputs[0].Name: {Unit: "kPa"}}
	})
	const want = `input "temp": the unit in data.units does not fit the task: "kPa" is a unit of pressure, but "°C" is a ` +
		`unit of temperature`
	if _, err := grid.NewRowBuilder(c); err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}
