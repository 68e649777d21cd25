package grid_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/spec"
)

const minute = int64(time.Minute)

// began is the start of the test streams, 2016-03-26T22:00Z, five hours before clocks in Berlin change to summer time.
var began = time.Date(2016, 3, 26, 22, 0, 0, 0, time.UTC)

func zone(t *testing.T, name string) *time.Location {
	t.Helper()
	z, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

// config returns a configuration with every kind of input and column.
func config(t *testing.T, target string, fill grid.FillRule) grid.RowBuilderConfig {
	return grid.RowBuilderConfig{
		Recipe: spec.RowRecipe{
			Grid: spec.TimeGrid{Step: 30 * time.Minute, Lateness: 50 * time.Minute}, Inputs: []spec.InputSeries{
				{Name: "pm", ValidRange: []float64{0, 1000}, Transform: spec.TransformLog1p},
				{Name: "temp", Resampling: spec.ResampleLast, StuckAfter: time.Hour}, {Name: "gust",
					Resampling: spec.ResampleMax,
					MaxJump:    50},
				{Name: "low", Resampling: spec.ResampleMin, StuckAfter: 90 * time.Minute, MaxJump: 40},
				{Name: "rain", Resampling: spec.ResampleSum}, {Name: "tips", Resampling: spec.ResampleCount},
				{Name: "wd", Classes: []string{"N", "E", "S W"}}, {Name: "label", LabelLateness: 3 * time.Hour},
				{Name: "level", Resampling: spec.ResampleHeld, MaxAge: 3 * time.Hour, Transform: spec.TransformLog1p},
				{Name: "valve", Resampling: spec.ResampleHeld, MaxAge: 100 * time.Minute, Classes: []string{"on",
					"off"}},
			}}.WithDefaults(),
		ExpandedFeatures: []string{"pm", "pm lag 1h", "temp mean 90m", "gust max 1h", "low min 1h", "pm std 2h", "rain",
			"tips", "wd = N", "wd = S W", "hour sin", "hour cos", "weekday sin", "weekday cos", "level mean 1h",
			"valve = on"},
		Target: target, CalendarZone: zone(t, "Europe/Berlin"), MissingFill: fill,
	}
}

// stream returns readings of all inputs over the given hours, in order of time. The share lost of them is omitted.
func stream(rng *rand.Rand, hours int, lost float64) (all []grid.Reading) {
	at, held := began.UnixNano(), map[string]float64{"temp": 1, "low": 1}
	for end := at + int64(hours)*60*minute; at < end; at += 1 + rng.Int64N(12*minute) {
		for _, name := range []string{"pm", "temp", "gust", "low", "rain", "tips", "wd", "level", "valve"} {
			r := grid.Reading{Input: name, Time: at + rng.Int64N(9)*minute, Value: 100 * rng.Float64()}
			if v := held[name]; v > 0 && rng.Float64() < 0.9 {
				r.Value = v
			} else if v > 0 {
				held[name] = r.Value
			}
			if name == "wd" {
				r.Value, r.Text = 0, []string{"N", "E", "S W"}[rng.IntN(3)]
			}
			if name == "valve" {
				r.Value, r.Text = 0, []string{"on", "off"}[rng.IntN(2)]
			}
			if (name == "level" || name == "valve") && rng.Float64() < 0.8 {
				continue // the value has not changed
			}
			if rng.Float64() >= lost {
				all = append(all, r)
			}
		}
	}
	for k := began.UnixNano() / (30 * minute); k*30*minute < at; k++ {
		if rng.IntN(4) > 0 {
			all = append(all, grid.Reading{Input: "label", Time: k * 30 * minute, Value: rng.Float64()})
		}
	}
	slices.SortStableFunc(all, func(a, b grid.Reading) int { return cmp.Compare(a.Time, b.Time) })
	return all
}

// shuffled delays readings by up to 50 minutes and labels by up to two hours, and returns them in order of arrival. The
// reading with the newest time arrives last.
func shuffled(rng *rand.Rand, all []grid.Reading) []grid.Reading {
	type arrival struct {
		at int64
		grid.Reading
	}
	var some []arrival
	for _, r := range all {
		a := arrival{r.Time + rng.Int64N(50*minute), r}
		if r.Input == "label" {
			a.at = r.Time + rng.Int64N(120*minute)
		}
		some = append(some, a)
	}
	slices.SortStableFunc(some, func(a, b arrival) int { return cmp.Compare(a.at, b.at) })
	came := make([]grid.Reading, 0, len(some))
	for _, a := range some {
		came = append(came, a.Reading)
	}
	return came
}

// run returns all rows made from the readings.
func run(t *testing.T, c grid.RowBuilderConfig, came []grid.Reading) (grid.MadeRows, *grid.RowBuilder) {
	t.Helper()
	g, err := grid.NewRowBuilder(c)
	if err != nil {
		t.Fatal(err)
	}
	var all grid.MadeRows
	for _, r := range came {
		g.AddReading(r)
		some := g.TakeRows()
		all.X, all.Y = append(all.X, some.X...), append(all.Y, some.Y...)
		all.Times = append(all.Times, some.Times...)
	}
	return all, g
}

// same checks that rows are bit-identical.
func same(t *testing.T, name string, got, want grid.MadeRows) {
	t.Helper()
	if !slices.Equal(got.Times, want.Times) {
		t.Fatalf("%s: %d rows, want %d; first other time at %d", name, len(got.Times), len(want.Times),
			differ(got.Times, want.Times))
	}
	if i := differ(got.Y, want.Y); i >= 0 {
		t.Fatalf("%s: target of row %d is %v, want %v", name, i, got.Y[i], want.Y[i])
	}
	if i := differ(got.X, want.X); i >= 0 {
		n := len(want.X) / len(want.Y)
		t.Fatalf("%s: column %d of row %d is %v, want %v", name, i%n, i/n, got.X[i], want.X[i])
	}
}

func differ[T comparable](a, b []T) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	if len(a) != len(b) {
		return min(len(a), len(b))
	}
	return -1
}

// TestRowsWithoutTarget checks rows for predictions, which are made before their targets are known.
func TestRowsWithoutTarget(t *testing.T) {
	came := stream(rand.New(rand.NewPCG(3, 1)), 200, 0.02)
	with, without := config(t, "pm in 1h", grid.FillRule{}), config(t, "", grid.FillRule{})
	with.IsForPrediction = true
	want, _ := run(t, with, came)
	got, _ := run(t, without, came)
	if same(t, "without target", got, want); len(got.Y) < 50 {
		t.Errorf("%d rows", len(got.Y))
	}
	without.ExpandedFeatures = append(without.ExpandedFeatures, "label")
	if _, err := grid.NewRowBuilder(without); err == nil || !strings.Contains(err.Error(), "the input label has the "+
		"key wait") {
		t.Errorf("a label as a feature: error %v", err)
	}
}

var fills = []grid.FillRule{{}, {Policy: grid.FillLast, MaxLastValueAge: time.Hour}, {Policy: grid.FillMean}}

// TestRowsAreThoseOfTheDefinition compares the rows of RowBuilder with the rows of the reference implementation oracle,
// for readings that are in order, shuffled, lost and duplicated.
func TestRowsAreThoseOfTheDefinition(t *testing.T) {
	rows, stuck, jumps := 0, uint64(0), uint64(0)
	for seed := range uint64(24) {
		rng := rand.New(rand.NewPCG(seed, 1))
		fill := fills[seed%3]
		target := []string{"pm in 3h", "label", "wd in 1h", "rain in 30m", "level in 1h"}[seed%5]
		c := config(t, target, fill)
		all := stream(rng, 30, []float64{0, 0.05, 0.4}[seed/3%3])
		name := fmt.Sprintf("seed %d, target %s, missing %s", seed, target, fill.Policy)
		want := newOracle(c, all).rows()
		rows += len(want.Y)
		got, g := run(t, c, all)
		same(t, name, got, want)
		counts, _, _ := g.ReadingCounts()
		for _, in := range counts {
			stuck, jumps = stuck+in.Unused[grid.ReasonStuck], jumps+in.Unused[grid.ReasonJump]
			if in.Unused[grid.ReasonLate] > 0 {
				t.Errorf("%s: %d readings of %s are late, in order", name, in.Unused[grid.ReasonLate], in.Input)
			}
		}
		came := shuffled(rng, append(slices.Clone(all), all[:len(all)/2]...)) // half of the readings are duplicated
		got, _ = run(t, c, came)
		same(t, name+", shuffled", got, newOracle(c, came).rows())
		same(t, name+", shuffled, against in order", got, want)
	}
	if rows < 500 || stuck < 100 || jumps < 100 {
		t.Errorf("%d rows only were compared; %d readings were stuck, %d jumped", rows, stuck, jumps)
	}
}
