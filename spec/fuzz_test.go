package spec

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// FuzzColumn checks that the string of a parsed column parses to the same column. A recipe with its input must accept
// the column or return an error.
func FuzzColumn(f *testing.F) {
	for _, name := range []string{"pm25", "pm25 lag 3h", "PM2.5 std 1h30m", "hour sin", "weekday cos", "wd = N N E",
		"pm25 in 6h", "wd = ", "pm25 lag 90s", "pm25 mean 1e3h", "hour = 1", "wd =  N",
		"pm25 lag 9223372036854775807ns"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		c, err := ParseColumnExpression(name)
		if err == nil {
			again, err := ParseColumnExpression(c.String())
			if err != nil || again != c {
				t.Fatalf("%q is %+v, whose name %q is %+v: %v", name, c, c.String(), again, err)
			}
		}
		r := air()
		for _, feature := range r.ExpandFeatures([]string{name}) {
			var found ProblemList
			if r.CheckColumns(&found, "task", []string{feature}, "label"); found.Err() != nil {
				continue
			}
			if got,
				err := ParseColumnExpression(feature); err != nil || !got.IsCalendar() &&
				r.InputIndex(got.InputName) < 0 {
				t.Fatalf("%q has no problem, and is no column of the recipe: %+v, %v", feature, got, err)
			}
		}
	})
}

// FuzzRecipe checks that any grid and inputs are accepted or rejected, and that the columns of an accepted recipe can
// be parsed by name.
func FuzzRecipe(f *testing.F) {
	f.Add(int64(3600e9), int64(600e9), "Asia/Shanghai", "pm25", "µg/m³", 0.0, 1000.0, "mean", "log1p", "", int64(0))
	f.Add(int64(1e6), int64(0), "", "wd", "", 0.0, 0.0, "last", "none", "N\nN N E", int64(0))
	f.Add(int64(60e9), int64(0), "UTC", "label", "", -1.0, 1.0, "", "", "", int64(86400e9))
	f.Add(int64(-1), int64(1<<62), "Local", "hour", "\x00", 1.0, 0.0, "mode", "exp", "\n", int64(-5))
	f.Fuzz(func(t *testing.T, step, lateness int64, zone, name, unit string, low, high float64, join, scale,
		classes string, wait int64) {
		in := InputSeries{Name: name, Unit: unit, Resampling: Resampling(join), Transform: ValueTransform(scale),
			LabelLateness: time.Duration(wait)}
		if low != 0 || high != 0 {
			in.ValidRange = []float64{low, high}
		}
		if classes != "" {
			in.Classes = strings.Split(classes, "\n")
		}
		g := TimeGrid{Step: time.Duration(step), Lateness: time.Duration(lateness), TimeZone: zone}
		r := RowRecipe{g, []InputSeries{in}}.WithDefaults()
		var found ProblemList
		if r.Check(&found, "task"); found.Err() != nil {
			return
		}
		for _, column := range r.ExpandFeatures([]string{name, "hour", "weekday"}) {
			if c, err := ParseColumnExpression(column); err != nil || c.String() != column ||
				!slices.Contains([]string{name, "hour", "weekday"}, c.InputName) {
				t.Fatalf("%q of a recipe without a problem is %+v: %v", column, c, err)
			}
		}
	})
}
