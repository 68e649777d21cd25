package grid_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/spec"
)

const hour = 60 * minute

// hourly returns a recipe with one temperature input and an hourly grid.
func hourly(change func(c *grid.RowBuilderConfig)) grid.RowBuilderConfig {
	c := grid.RowBuilderConfig{
		Recipe: spec.RowRecipe{Grid: spec.TimeGrid{Step: time.Hour}, Inputs: []spec.InputSeries{
			{Name: "temp", ValidRange: []float64{-50, 60}}, {Name: "wd", Classes: []string{"0", "N"}}}},
		ExpandedFeatures: []string{"temp"}, Target: "temp in 1h",
	}
	if change != nil {
		change(&c)
	}
	c.Recipe = c.Recipe.WithDefaults()
	return c
}

func temp(at int64, v float64) grid.Reading { return grid.Reading{Input: "temp", Time: at, Value: v} }

// countOf formats the counts of the input with the given index as text.
func countOf(g *grid.RowBuilder, place int) string {
	counts, dropped, strange := g.ReadingCounts()
	c := counts[place]
	return fmt.Sprint(c.Used, c.Unused, dropped, strange)
}

// TestTextOfANumber checks that texts that contain a number are used as numbers, such as quoted JSON numbers, and that
// the text true is used as 1.
func TestTextOfANumber(t *testing.T) {
	rows, g := run(t, hourly(nil), []grid.Reading{{Input: "temp", Time: 10 * hour, Text: "21.5", Value: 21.5},
		{Input: "temp", Time: 11 * hour, Text: "true", Value: 1}, temp(12*hour, 3), temp(13*hour, 4)})
	if got, want := countOf(g, 0), "3 map[] 0 0"; got != want || !slices.Equal(rows.X, []float32{21.5, 1}) ||
		!slices.Equal(rows.Y, []float32{1, 3}) {
		t.Errorf("%s, want %s; rows of %v and %v", got, want, rows.X, rows.Y)
	}
}

// TestWhatIsNotUsedIsCounted checks that each rejected reading is counted under the reason for its rejection.
func TestWhatIsNotUsedIsCounted(t *testing.T) {
	came := []grid.Reading{
		// the second and the fourth reading are a duplicate and a late reading
		temp(10*hour, 1), temp(10*hour, 2), temp(11*hour, 3), temp(9*hour, 4),
		temp(11*hour, math.NaN()), temp(11*hour, math.Inf(1)), temp(11*hour, 61),
		{Input: "temp", Time: 11 * hour, Text: "warm", Value: math.NaN()}, temp(-1, 5), temp(math.MaxInt64, 5),
		{Input: "sun", Time: 11 * hour},
		{Input: "wd", Time: 11 * hour, Text: "S"}, {Input: "wd", Time: 11 * hour, Text: "N"},
		{Input: "wd", Time: 12 * hour},
		// The readings have no temperature at 12:00, and no reading of any input at 13:00.
		temp(14*hour, 1), temp(15*hour, 1), temp(16*hour, 1),
	}
	rows, g := run(t, hourly(nil), came)
	want := "4 map[bad_time:2 gap:1 late:1 missing:1 not_a_number:1 not_finite:1 out_of_range:1 twice:1] 1 1"
	if got := countOf(g, 0); got != want {
		t.Errorf("temp: %s, want %s", got, want)
	}
	if got, want := countOf(g, 1), "2 map[unknown_class:1] 1 1"; got != want {
		t.Errorf("wd: %s, want %s", got, want)
	}
	if !slices.Equal(rows.Times, []int64{10 * hour, 14 * hour}) || !slices.Equal(rows.Y, []float32{3, 1}) {
		t.Errorf("rows at %v of %v", rows.Times, rows.Y)
	}
}

// TestCountsSayWhere checks the reported line and time of the last rejected reading, in total and by reason, and the
// time of the last dropped row. Readings may be rejected on arrival or when they leave the queue.
func TestCountsSayWhere(t *testing.T) {
	at := func(line, at int64, v float64) grid.Reading {
		return grid.Reading{Input: "temp", Time: at, Value: v, Line: line}
	}
	c := hourly(func(c *grid.RowBuilderConfig) { c.Recipe.Grid.Lateness = time.Hour })
	other := func(at int64) grid.Reading { return grid.Reading{Input: "wd", Time: at * hour, Text: "N", Line: 5} }
	_, g := run(t, c, []grid.Reading{at(2, 10*hour, 1), at(3, 11*hour, 99), at(4, 10*hour, 2)})
	counts, _, _ := g.ReadingCounts()
	if n := counts[0]; n.LastRejected.Line != 3 || n.LastRejected.Time != 11*hour || n.LastGapTime != 0 ||
		n.Unused[grid.ReasonOutOfRange] != 1 {
		t.Errorf("%+v, want line 3", n)
	}
	_, g = run(t, c, []grid.Reading{at(2, 10*hour, 1), at(3, 11*hour, 99), at(4, 10*hour, 2), other(12),
		other(13), at(6, 15*hour, 2), at(7, 16*hour, 3)})
	counts, dropped, _ := g.ReadingCounts()
	if n := counts[0]; n.LastRejected.Line != 4 || n.LastRejected.Time != 10*hour || n.LastGapTime != 12*hour ||
		n.Unused[grid.ReasonDuplicate] != 1 || n.Unused[grid.ReasonGap] != 1 || dropped != 1 ||
		n.LastRejectedByReason[grid.ReasonOutOfRange] != (grid.RejectedReading{Why: grid.ReasonOutOfRange, Line: 3,
			Time:  11 * hour,
			Value: 99}) ||
		n.LastRejectedByReason[grid.ReasonDuplicate] != n.LastRejected ||
		// A row was dropped for the gap at 12:00. The other missing rows require 11:00 or 14:00, when the device was
		// off.
		len(n.LastRejectedByReason) != 2 {
		t.Errorf("%+v, %d rows dropped; want line 4", n, dropped)
	}
}

// TestStuck checks that an unchanged value is rejected after StuckAfter until it changes, even if another input still
// changes.
func TestStuck(t *testing.T) {
	c := hourly(func(c *grid.RowBuilderConfig) { c.Recipe.Inputs[0].StuckAfter, c.Target = 2*time.Hour, "temp" })
	c.ExpandedFeatures, c.Recipe.Grid.Lateness = []string{"hour sin"}, time.Hour
	var came []grid.Reading
	for k, v := range []float64{5, 5, 5, 5, 5, 6, 6, 5, 5, 5, 5, 1, 2, 3} { // the first value lasts from 10 to 14
		came = append(came, temp(int64(10+k)*hour, v))
		if k%2 == 1 {
			came[k], came[k-1] = came[k-1], came[k]
		}
	}
	rows, g := run(t, c, came)
	var at []int64
	for _, r := range rows.Times {
		at = append(at, r/hour)
	}
	if want := []int64{10, 11, 12, 15, 16, 17, 18, 19, 21}; !slices.Equal(at, want) {
		t.Errorf("rows at %v, want %v", at, want)
	}
	if got, want := countOf(g, 0), "9 map[gap:3 stuck:3] 3 0"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestJump checks that a value too far from the previous value is rejected, and that the third value near a new level
// is accepted.
func TestJump(t *testing.T) {
	for name, tt := range map[string]struct {
		hours []int64 // hours of the readings; nil means consecutive hours
		came  []float64
		used  []float32
	}{
		"two peaks":             {nil, []float64{1, 2, 50, 3, -40, -40, 4, 5}, []float32{1, 2, 3, 4, 5}},
		"a new level":           {nil, []float64{1, 2, 50, 51, 52, 53}, []float32{1, 2, 52, 53}},
		"peaks that disagree":   {nil, []float64{1, 50, -50, 51, -51, 52, -52, 1}, []float32{1, 1}},
		"a slope, step by step": {nil, []float64{1, 11, 21, 31}, []float32{1, 11, 21, 31}},
		"more in more time":     {[]int64{0, 4, 8, 13, 14}, []float64{2, 42, 1, 3, 2}, []float32{2, 42, 3, 2}},
		"stuck on a new level":  {nil, []float64{1, 9, 50, 50, 50, 50, 50, 51}, []float32{1, 9, 50, 50, 51}},
	} {
		c := hourly(func(c *grid.RowBuilderConfig) {
			c.Recipe.Inputs[0].MaxJump, c.Recipe.Inputs[0].StuckAfter = 10, 3*time.Hour
			c.ExpandedFeatures, c.Target = []string{"hour sin"}, "temp"
		})
		var came []grid.Reading
		for k, v := range tt.came {
			h := int64(k)
			if tt.hours != nil {
				h = tt.hours[k]
			}
			came = append(came, temp((100+h)*hour, v))
		}
		rows, g := run(t, c, append(came, temp(200*hour, 0))) // the point of the last reading remains open
		if !slices.Equal(rows.Y, tt.used) {
			t.Errorf("%s: %v are used of %v, want %v; %s", name, rows.Y, tt.came, tt.used, countOf(g, 0))
		}
	}
}

// TestRefuse checks that with the policy "refuse" the first missing value is reported, but not before the lookback of
// the columns is filled.
func TestRefuse(t *testing.T) {
	c := hourly(func(c *grid.RowBuilderConfig) {
		c.MissingFill.Policy, c.ExpandedFeatures = grid.FillRefuse, []string{"temp lag 2h"}
	})
	g, err := grid.NewRowBuilder(c)
	if err != nil {
		t.Fatal(err)
	}
	for k := int64(100); k < 110; k++ {
		g.AddReading(temp(k*hour, 1))
	}
	if err := g.MissingValueError(); err != nil {
		t.Error("refused where nothing is missing:", err)
	}
	for k := int64(111); k < 120; k++ {
		g.AddReading(temp(k*hour, 1))
	}
	want := `1970-01-05T16:00:00Z: column "temp lag 2h" has no value, and missing values are not allowed`
	if err := g.MissingValueError(); fmt.Sprint(err) != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestSilence checks that a reading from a wrong clock costs no computing time, and that rows are made again after it.
func TestSilence(t *testing.T) {
	c := hourly(func(c *grid.RowBuilderConfig) {
		c.Recipe.Grid.Step, c.ExpandedFeatures, c.Target = time.Millisecond, []string{"temp lag 1ms"}, "temp in 1ms"
		c.MissingFill = grid.FillRule{Policy: grid.FillLast, MaxLastValueAge: 10 * time.Second}
	})
	ms := int64(time.Millisecond)
	var came []grid.Reading
	for _, at := range []int64{0, 1_700_000_000_000, 1_700_000_000_001, 1_700_000_000_002, 1_700_000_000_003} {
		came = append(came, temp(at*ms, 1))
	}
	rows, _ := run(t, c, came)
	if !slices.Equal(rows.Times, []int64{1_700_000_000_001 * ms}) {
		t.Errorf("rows at %v", rows.Times)
	}
}

// TestQueueIsBounded checks that the oldest readings leave a full queue early, and that later arrivals with earlier
// times are rejected.
func TestQueueIsBounded(t *testing.T) {
	c := hourly(func(c *grid.RowBuilderConfig) { c.Recipe.Grid.Lateness, c.MaxQueuedReadings = 1000*time.Hour, 4 })
	var came []grid.Reading
	for k := int64(100); k < 110; k++ {
		came = append(came, temp(k*hour, float64(k-100)))
	}
	rows, g := run(t, c, append(came, temp(104*hour, 0)))
	if !slices.Equal(rows.Y, []float32{1, 2, 3, 4}) {
		t.Errorf("targets %v", rows.Y)
	}
	if got := countOf(g, 0); got != "6 map[dropped:1] 0 0" {
		t.Errorf("counted %s", got)
	}
}

// TestLabels checks that rows wait for their labels, in order of time, and are dropped after the label lateness.
func TestLabels(t *testing.T) {
	c := hourly(func(c *grid.RowBuilderConfig) {
		c.Recipe.Inputs = append(c.Recipe.Inputs, spec.InputSeries{Name: "y", LabelLateness: 3 * time.Hour})
		c.Target = "y"
	})
	g, err := grid.NewRowBuilder(c)
	if err != nil {
		t.Fatal(err)
	}
	label := func(k int64) { g.AddReading(grid.Reading{Input: "y", Time: k * hour, Value: float64(k)}) }
	for _, step := range []struct {
		do   func()
		want []int64 // points of the resulting rows
	}{
		{func() {
			g.AddReading(temp(100*hour, 1))
			g.AddReading(temp(101*hour, 1))
			g.AddReading(temp(102*hour, 1))
		}, nil},
		{func() { label(101) }, nil}, // the row at 101 waits for the row at 100
		{func() { label(100) }, []int64{100, 101}},
		{func() { label(101) }, nil}, // this second label for 101 is late
		{func() { label(103) }, nil}, // the point of this label is still open
		{func() { g.AddReading(temp(103*hour, 1)); g.AddReading(temp(105*hour, 1)) }, nil},
		// The row at 102 no longer waits for its label and is dropped.
		{func() { g.AddReading(temp(105*hour+1, 1)) }, []int64{103}},
		{func() { label(102) }, nil},
	} {
		step.do()
		var got []int64
		for _, at := range g.TakeRows().Times {
			got = append(got, at/hour)
		}
		if !slices.Equal(got, step.want) {
			t.Errorf("rows of the points %v, want %v", got, step.want)
		}
	}
	if got := countOf(g, 2); got != "3 map[late:2 no_label:1] 1 0" {
		t.Errorf("counted %s", got)
	}
}

// TestCalendarOnChangesOfTheClock checks the calendar columns (local hour) in Berlin on both changes of daylight saving
// time, and in time zones with half-hour and three-quarter-hour offsets.
func TestCalendarOnChangesOfTheClock(t *testing.T) {
	for _, x := range []struct {
		zone, at string
		hours    float64 // expected number of hours since Monday
	}{
		{"Europe/Berlin", "2016-03-27T00:00:00Z", 6*24 + 1}, {"Europe/Berlin", "2016-03-27T01:00:00Z", 6*24 + 3},
		{"Europe/Berlin", "2016-10-30T00:00:00Z", 6*24 + 2}, {"Europe/Berlin", "2016-10-30T01:00:00Z", 6*24 + 2},
		{"Europe/Berlin", "2016-10-30T02:00:00Z", 6*24 + 3}, {"Asia/Kolkata", "2016-03-27T00:00:00Z", 6*24 + 5.5},
		{"Asia/Kathmandu", "2016-03-27T18:30:00Z", 0.25}, {"Australia/Lord_Howe", "2016-04-02T15:00:00Z", 6*24 + 1.5},
		{"UTC", "2016-03-28T00:00:00Z", 0},
	} {
		at, err := time.Parse(time.RFC3339, x.at)
		if err != nil {
			t.Fatal(err)
		}
		c := hourly(func(c *grid.RowBuilderConfig) {
			c.Recipe.Grid.Step, c.CalendarZone = 15*time.Minute, zone(t, x.zone)
			c.ExpandedFeatures, c.Target = []string{"hour sin", "hour cos", "weekday sin", "weekday cos"}, "temp"
		})
		rows, _ := run(t, c, []grid.Reading{temp(at.UnixNano(), 1), temp(at.UnixNano()+1, 1)})
		sin, cos := math.Sincos(2 * math.Pi * x.hours / 24)
		wsin, wcos := math.Sincos(2 * math.Pi * x.hours / 168)
		for i, want := range []float64{sin, cos, wsin, wcos} {
			if len(rows.X) != 4 || math.Abs(float64(rows.X[i])-want) > 1e-6 {
				t.Fatalf("%s in %s: %v, want %v to %v", x.at, x.zone, rows.X, i, want)
			}
		}
	}
}

// TestNewRefuses checks that NewRowBuilder rejects invalid recipes, and features that are short forms.
func TestNewRefuses(t *testing.T) {
	for want, change := range map[string]func(c *grid.RowBuilderConfig){
		"task.grid.step":         func(c *grid.RowBuilderConfig) { c.Recipe.Grid.Step = 0 },
		"task.features[0]":       func(c *grid.RowBuilderConfig) { c.ExpandedFeatures[0] = "sun" },
		"expanded feature names": func(c *grid.RowBuilderConfig) { c.ExpandedFeatures[0] = "hour" },
		"task.inputs":            func(c *grid.RowBuilderConfig) { c.Recipe = spec.RowRecipe{} },
	} {
		if _, err := grid.NewRowBuilder(hourly(change)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestMemoryIsFlat checks that a long stream of readings does not keep readings beyond the lookback of the columns in
// memory.
func TestMemoryIsFlat(t *testing.T) {
	c := hourly(func(c *grid.RowBuilderConfig) { c.Recipe.Grid.Step, c.Target = time.Second, "temp in 1s" })
	g, err := grid.NewRowBuilder(c)
	if err != nil {
		t.Fatal(err)
	}
	at := int64(0)
	add := func() {
		at += int64(time.Millisecond)
		g.AddReading(temp(at, 1))
		g.TakeRows()
	}
	for range 3000 {
		add()
	}
	if n := testing.AllocsPerRun(20_000, add); n > 0.02 { // one row per second, with its three slices
		t.Errorf("%v allocations a reading", n)
	}
}

// TestSumHasNoLogarithm checks readings of −½ whose sum is −1, for which log1p is undefined. The grid point is treated
// as missing, and does not affect the mean that fills gaps.
func TestSumHasNoLogarithm(t *testing.T) {
	c := hourly(func(c *grid.RowBuilderConfig) {
		in := &c.Recipe.Inputs[0]
		in.Resampling, in.Transform, in.ValidRange = spec.ResampleSum, spec.TransformLog1p, nil
		c.MissingFill = grid.FillRule{Policy: grid.FillMean}
	})
	rows, _ := run(t, c, []grid.Reading{temp(100*hour, 1), temp(101*hour-1, -0.5), temp(101*hour, -0.5),
		temp(102*hour, 1), temp(103*hour, 1), temp(104*hour, 1)})
	if len(rows.Y) < 2 {
		t.Fatalf("rows %+v", rows)
	}
	for i := range rows.Y {
		if x, y := float64(rows.X[i]), float64(rows.Y[i]); math.Abs(x-math.Ln2) > 1e-6 || math.Abs(y-math.Ln2) > 1e-6 {
			t.Errorf("row at %d: %v → %v, want the logarithm of 2", rows.Times[i]/hour, x, y)
		}
	}
}

// TestOfflineDevice checks that the previous value of an input is not repeated for times at which its device is
// offline, even if readings arrive out of order. Other missing values do not end the repetition.
func TestOfflineDevice(t *testing.T) {
	missing := func(at int64, text string) grid.Reading {
		return grid.Reading{Input: "temp", Time: at, Text: text, Value: math.NaN()}
	}
	c := hourly(func(c *grid.RowBuilderConfig) {
		c.Recipe.Grid.Lateness = 3 * time.Hour
		c.Recipe.Inputs = append(c.Recipe.Inputs, spec.InputSeries{Name: "y"})
		c.ExpandedFeatures, c.Target = []string{"temp"}, "y"
		c.MissingFill = grid.FillRule{Policy: grid.FillLast, MaxLastValueAge: 24 * time.Hour}
	})
	for text, want := range map[string][]float32{"NA": {1, 1, 1, 1, 1, 2}, "unavailable": {1, 1, 1, 2},
		" Offline": {1, 1, 1, 2}} {
		var readings []grid.Reading
		for h := range int64(10) {
			readings = append(readings, grid.Reading{Input: "y", Time: (10 + h) * hour, Value: float64(h)})
		}
		// The device is offline at 13:00 and online from 15:00 on. The readings do not arrive in order.
		readings = slices.Insert(readings, 0, temp(10*hour, 1))
		readings = slices.Insert(readings, 3, missing(12*hour+minute, text))
		readings = slices.Insert(readings, 4, temp(12*hour, 1), missing(12*hour+minute, text), temp(15*hour, 2))
		rows, g := run(t, c, readings)
		if !slices.Equal(rows.X[:len(want)], want) {
			t.Errorf("%q: %v, want %v first", text, rows.X, want)
		}
		counts, _, _ := g.ReadingCounts()
		if n := counts[0]; n.Unused[grid.ReasonMissing] == 0 || n.Used != 3 {
			t.Errorf("%q: %+v", text, n)
		}
	}
	offline := missing(10*hour, "offline")
	rows, _ := run(t, c, []grid.Reading{offline, {Input: "y", Time: 10 * hour}, {Input: "y", Time: 20 * hour}})
	if len(rows.X) != 0 {
		t.Errorf("a device that was never online: %v", rows.X)
	}
}
