package grid_test

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/spec"
)

// oracle makes rows directly by their definition, as a reference for RowBuilder. It searches all readings for each
// value.
type oracle struct {
	c        grid.RowBuilderConfig
	readings []grid.Reading // readings in order of time, without duplicates
	first    int64          // grid point of the first reading
	mark     int64          // watermark after all readings
}

func newOracle(c grid.RowBuilderConfig, came []grid.Reading) *oracle {
	o := &oracle{c: c, first: math.MaxInt64}
	for _, r := range came {
		same := func(s grid.Reading) bool {
			return s.Input == r.Input && s.Time == r.Time && s.Source == r.Source
		}
		if !slices.ContainsFunc(o.readings, same) {
			o.readings = append(o.readings, r)
		}
		o.mark = max(o.mark, r.Time-int64(c.Recipe.Grid.Lateness))
		if o.input(r.Input).LabelLateness == 0 {
			o.first = min(o.first, o.point(r.Time))
		}
	}
	slices.SortStableFunc(o.readings, func(a, b grid.Reading) int { return cmp.Compare(a.Time, b.Time) })
	var all []grid.Reading
	for _, in := range c.Recipe.Inputs {
		all = append(all, o.believed(in)...)
	}
	slices.SortStableFunc(all, func(a, b grid.Reading) int { return cmp.Compare(a.Time, b.Time) })
	o.readings = all
	return o
}

// believed returns the readings of an input that are plausible: neither stuck nor part of a jump.
func (o *oracle) believed(in spec.InputSeries) (all []grid.Reading) {
	var moving []grid.Reading // readings that are not stuck
	of := slices.DeleteFunc(slices.Clone(o.readings), func(r grid.Reading) bool { return r.Input != in.Name })
	for i, r := range of {
		first := i
		for first > 0 && of[first-1].Value == r.Value {
			first--
		}
		if in.StuckAfter == 0 || r.Time-of[first].Time <= int64(in.StuckAfter) {
			moving = append(moving, r)
		}
	}
	far := func(a, b grid.Reading) bool {
		steps := max(1, float64(b.Time-a.Time)/float64(o.step()))
		return in.MaxJump > 0 && math.Abs(a.Value-b.Value) > in.MaxJump*steps
	}
	from := 0 // index of the reading after the last accepted one
	for i, r := range moving {
		near := len(all) == 0 || !far(all[len(all)-1], r)
		third := i-from >= 2 && !far(moving[i-1], r) && !far(moving[i-2], moving[i-1])
		if near || third {
			all, from = append(all, r), i+1
		}
	}
	return all
}

func (o *oracle) input(name string) spec.InputSeries {
	return o.c.Recipe.Inputs[o.c.Recipe.InputIndex(name)]
}
func (o *oracle) step() int64         { return int64(o.c.Recipe.Grid.Step) }
func (o *oracle) point(t int64) int64 { return int64(math.Ceil(float64(t) / float64(o.step()))) }

// numeric returns the number of a reading: its value, or the index of its class.
func (o *oracle) numeric(in spec.InputSeries, r grid.Reading) float64 {
	if len(in.Classes) > 0 {
		return float64(slices.Index(in.Classes, r.Text))
	}
	return r.Value
}

// measured aggregates the readings with a time in (t − step, t].
func (o *oracle) measured(name string, k int64) float64 {
	var here []float64
	heard, in := false, o.input(name)
	var last grid.Reading
	for _, r := range o.readings {
		if r.Input != name || r.Time > k*o.step() {
			continue
		}
		heard, last = true, r
		if r.Time > (k-1)*o.step() {
			here = append(here, o.numeric(in, r))
		}
	}
	if in.Resampling == spec.ResampleHeld && heard && k*o.step()-last.Time <= int64(in.MaxAge) && len(here) == 0 {
		here = []float64{o.numeric(in, last)}
	}
	v := math.NaN()
	switch sum := 0.0; {
	case in.Resampling == spec.ResampleCount && heard:
		v = float64(len(here))
	case len(here) == 0:
	case in.Resampling == spec.ResampleLast, in.Resampling == spec.ResampleHeld:
		v = here[len(here)-1]
	case in.Resampling == spec.ResampleMax:
		v = slices.Max(here)
	case in.Resampling == spec.ResampleMin:
		v = slices.Min(here)
	default:
		for _, x := range here {
			sum += x
		}
		if v = sum; in.Resampling == spec.ResampleMean {
			v = sum / float64(len(here))
		}
	}
	if in.Transform == spec.TransformLog1p {
		v = math.Log1p(v)
	}
	if math.IsInf(v, 0) {
		return math.NaN()
	}
	return v
}

// filled returns the measured value of a grid point, or the replacement for a missing value.
func (o *oracle) filled(name string, k int64) float64 {
	v := o.measured(name, k)
	if k < o.first || v == v {
		return v
	}
	var before []float64
	for j := o.first; j < k; j++ {
		if x := o.measured(name, j); x == x {
			before = append(before, x)
			if o.c.MissingFill.Policy == grid.FillLast && (k-j)*o.step() <= int64(o.c.MissingFill.MaxLastValueAge) {
				v = x
			}
		}
	}
	if o.c.MissingFill.Policy != grid.FillMean || len(before) == 0 {
		return v
	}
	sum, count := 0.0, make([]int, 64)
	for _, x := range before {
		if sum += x; len(o.input(name).Classes) > 0 {
			count[int(x)]++
		}
	}
	if len(o.input(name).Classes) > 0 {
		return float64(slices.Index(count, slices.Max(count)))
	}
	return sum / float64(len(before))
}

func (o *oracle) column(name string, k int64) float64 {
	words := strings.SplitN(name, " ", 3)
	at := time.Unix(0, k*o.step()).In(o.c.CalendarZone)
	day := at.Sub(time.Date(at.Year(), at.Month(), at.Day(), 0, 0, 0, 0, time.UTC))
	_, offset := at.Zone()
	turn := (day + time.Duration(offset)*time.Second).Seconds() / 86400
	if words[0] == "weekday" {
		turn = (float64(map[string]int{"Mon": 0, "Tue": 1, "Wed": 2, "Thu": 3, "Fri": 4, "Sat": 5,
			"Sun": 6}[at.Format("Mon")]) + turn) / 7
	}
	switch {
	case len(words) == 1:
		return o.filled(name, k)
	case words[1] == "sin":
		return math.Sin(2 * math.Pi * turn)
	case words[1] == "cos":
		return math.Cos(2 * math.Pi * turn)
	case words[1] == "=":
		v := o.filled(words[0], k)
		if v != v {
			return v
		}
		return map[bool]float64{true: 1}[o.input(words[0]).Classes[int(v)] == words[2]]
	}
	d, err := time.ParseDuration(words[2])
	if err != nil {
		panic(err)
	}
	n := int64(d) / o.step()
	if words[1] == "lag" {
		return o.filled(words[0], k-n)
	}
	var window []float64
	for j := k - n + 1; j <= k; j++ {
		window = append(window, o.filled(words[0], j))
	}
	return statistic(words[1], window)
}

func statistic(by string, window []float64) float64 {
	sum, squares := 0.0, 0.0
	for _, x := range window {
		sum += x
	}
	mean := sum / float64(len(window))
	for _, x := range window {
		squares += float64((x - mean) * (x - mean))
	}
	for _, x := range window {
		if x != x {
			return x
		}
	}
	return map[string]float64{"mean": mean, "min": slices.Min(window), "max": slices.Max(window),
		"std": math.Sqrt(squares / float64(len(window)))}[by]
}

// rows returns all rows whose targets are known.
func (o *oracle) rows() (all grid.MadeRows) {
	goal, err := spec.ParseColumnExpression(o.c.Target)
	if err != nil {
		panic(err)
	}
	ahead, wait, back := int64(goal.LagOrWindow)/o.step(), int64(o.input(goal.InputName).LabelLateness), int64(0)
	for _, f := range o.c.ExpandedFeatures {
		switch c, _ := spec.ParseColumnExpression(f); {
		case c.Operation == spec.OperationLag:
			back = max(back, int64(c.LagOrWindow)/o.step())
		case c.IsWindow():
			back = max(back, int64(c.LagOrWindow)/o.step()-1)
		}
	}
	for k := o.first; (k+ahead)*o.step() < o.mark; k++ {
		y := o.measured(goal.InputName, k+ahead)
		if wait > 0 && y != y && k*o.step()+wait >= o.mark {
			return all
		}
		row := []float32{}
		for _, f := range o.c.ExpandedFeatures {
			row = append(row, float32(o.column(f, k)))
		}
		missing := func(x float32) bool { return x != x }
		if k < o.first+back || y != y || slices.ContainsFunc(row, missing) {
			continue
		}
		all.X, all.Y = append(all.X, row...), append(all.Y, float32(y))
		all.Times = append(all.Times, k*o.step())
	}
	return all
}
