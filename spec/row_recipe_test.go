package spec

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

func air() RowRecipe {
	return RowRecipe{TimeGrid{Step: time.Hour, Lateness: 10 * time.Minute, TimeZone: "Asia/Shanghai"}, []InputSeries{
		{Name: "pm25", Unit: "µg/m³", ValidRange: []float64{0, 1000}, Transform: TransformLog1p},
		{Name: "temp", ValidRange: []float64{-50, 60}},
		{Name: "wd", Classes: []string{"N", "N N E"}},
		{Name: "label", LabelLateness: 24 * time.Hour},
	}}.WithDefaults()
}

func TestColumnNames(t *testing.T) {
	for name, want := range map[string]ColumnExpression{
		"pm25":            {InputName: "pm25"},
		"pm25 lag 3h":     {InputName: "pm25", Operation: OperationLag, LagOrWindow: 3 * time.Hour},
		"PM2.5 std 1h30m": {InputName: "PM2.5", Operation: OperationStd, LagOrWindow: 90 * time.Minute},
		"x mean 10s":      {InputName: "x", Operation: OperationMean, LagOrWindow: 10 * time.Second},
		"x min 20m":       {InputName: "x", Operation: OperationMin, LagOrWindow: 20 * time.Minute},
		"x max 48h":       {InputName: "x", Operation: OperationMax, LagOrWindow: 48 * time.Hour},
		"hour sin":        {InputName: "hour", Operation: OperationSin},
		"weekday cos":     {InputName: "weekday", Operation: OperationCos},
		"wd = N N E":      {InputName: "wd", Operation: OperationIsClass, Class: "N N E"},
		"pm25 in 6h":      {InputName: "pm25", Operation: OperationHorizon, LagOrWindow: 6 * time.Hour},
	} {
		got, err := ParseColumnExpression(name)
		if err != nil || got != want || got.String() != name {
			t.Errorf("%q is %+v, named %q, %v", name, got, got, err)
		}
	}
	for _, name := range []string{"", " ", "a b", "a lag", "a lag 3", "a lag -3h", "a lag 0s", "a  lag 3h", "a lag 3h ",
		"hour", "weekday", "hour lag 3h", "hour sin ", "a sin", "a =", "ä", "a median 3h", "= N"} {
		if c, err := ParseColumnExpression(name); err == nil {
			t.Errorf("%q is read as %+v", name, c)
		}
	}
}

func TestExpand(t *testing.T) {
	r := air()
	got := r.ExpandFeatures([]string{"pm25", "hour", "wd", "weekday cos", "wd = N"})
	want := []string{"pm25", "hour sin", "hour cos", "wd = N", "wd = N N E", "weekday cos", "wd = N"}
	if !slices.Equal(got, want) {
		t.Errorf("expanded to %q", got)
	}
}

func TestRecipeOfNothing(t *testing.T) {
	var c ProblemList
	r := RowRecipe{}
	if r.Check(&c, "task"); c.Err() != nil {
		t.Error(c.Err())
	}
	r.Grid.Step = time.Hour
	if r.Check(&c, "task"); c.Err() == nil {
		t.Error("a grid without inputs is taken")
	}
}

// TestRecipeProblems checks that each invalid value is reported as a single error under its configuration key.
func TestRecipeProblems(t *testing.T) {
	for name, c := range map[string]struct {
		change func(r *RowRecipe)
		key    string
	}{
		"no step":           {func(r *RowRecipe) { r.Grid.Step = 0 }, "task.grid.step"},
		"a part of a ms":    {func(r *RowRecipe) { r.Grid.Step += 1 }, "task.grid.step"},
		"lateness below 0":  {func(r *RowRecipe) { r.Grid.Lateness = -time.Second }, "task.grid.lateness"},
		"too late":          {func(r *RowRecipe) { r.Grid.Lateness = 10_001 * time.Hour }, "task.grid.lateness"},
		"the device's zone": {func(r *RowRecipe) { r.Grid.TimeZone = "Local" }, "task.grid.zone"},
		"too many":          {func(r *RowRecipe) { r.Inputs = many(257) }, "task.inputs"},
		"no name":           {func(r *RowRecipe) { r.Inputs[1].Name = "" }, "task.inputs[1].name"},
		"a space":           {func(r *RowRecipe) { r.Inputs[1].Name = "a b" }, "task.inputs[1].name"},
		"a word of columns": {func(r *RowRecipe) { r.Inputs[1].Name = "hour" }, "task.inputs[1].name"},
		"twice":             {func(r *RowRecipe) { r.Inputs[1].Name = "pm25" }, "task.inputs[1].name"},
		"a line break":      {func(r *RowRecipe) { r.Inputs[0].Unit = "a\nb" }, "task.inputs[0].unit"},
		"half a range":      {func(r *RowRecipe) { r.Inputs[1].ValidRange = []float64{1} }, "task.inputs[1].range"},
		"a range backwards": {func(r *RowRecipe) { r.Inputs[1].ValidRange = []float64{1, 0} }, "task.inputs[1].range"},
		"no logarithm": {func(r *RowRecipe) { r.Inputs[0].ValidRange = []float64{-1, 1} },
			"task.inputs[0].range"},
		"an unknown join":    {func(r *RowRecipe) { r.Inputs[0].Resampling = "mode" }, "task.inputs[0].join"},
		"an unknown scale":   {func(r *RowRecipe) { r.Inputs[0].Transform = "exp" }, "task.inputs[0].scale"},
		"a mean of classes":  {func(r *RowRecipe) { r.Inputs[2].Resampling = ResampleMean }, "task.inputs[2].join"},
		"a scale of classes": {func(r *RowRecipe) { r.Inputs[2].Transform = TransformLog1p }, "task.inputs[2].scale"},
		"a range of classes": {func(r *RowRecipe) { r.Inputs[2].ValidRange = []float64{0, 1} }, "task.inputs[2].range"},
		"one class":          {func(r *RowRecipe) { r.Inputs[2].Classes = []string{"N"} }, "task.inputs[2].classes"},
		"a class twice":      {func(r *RowRecipe) { r.Inputs[2].Classes[1] = "N" }, "task.inputs[2].classes[1]"},
		"a class in space":   {func(r *RowRecipe) { r.Inputs[2].Classes[1] = "E " }, "task.inputs[2].classes[1]"},
		"a wait below 0":     {func(r *RowRecipe) { r.Inputs[3].LabelLateness = -1 }, "task.inputs[3].wait"},
		"stuck below 0":      {func(r *RowRecipe) { r.Inputs[1].StuckAfter = -time.Hour }, "task.inputs[1].stuck"},
		"stuck for years": {func(r *RowRecipe) { r.Inputs[1].StuckAfter = 10_001 * time.Hour },
			"task.inputs[1].stuck"},
		"a jump below 0":     {func(r *RowRecipe) { r.Inputs[1].MaxJump = -1 }, "task.inputs[1].jump"},
		"an endless jump":    {func(r *RowRecipe) { r.Inputs[1].MaxJump = math.Inf(1) }, "task.inputs[1].jump"},
		"a jump of classes":  {func(r *RowRecipe) { r.Inputs[2].MaxJump = 1 }, "task.inputs[2].jump"},
		"a stuck label":      {func(r *RowRecipe) { r.Inputs[3].StuckAfter = time.Hour }, "task.inputs[3].wait"},
		"a label that jumps": {func(r *RowRecipe) { r.Inputs[3].MaxJump = 1 }, "task.inputs[3].wait"},
	} {
		r, found := air(), ProblemList{}
		if r.Check(&found, "task"); found.Err() != nil {
			t.Fatal(found.Err())
		}
		c.change(&r)
		r.Check(&found, "task")
		if got := fmt.Sprint(found.Err()); !strings.HasPrefix(got, c.key+": ") || strings.Contains(got, "\n") {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func many(n int) []InputSeries {
	all := make([]InputSeries, n)
	for i := range all {
		all[i] = InputSeries{Name: fmt.Sprint("x", i), Resampling: ResampleMean, Transform: TransformNone}
	}
	return all
}

func TestColumnProblems(t *testing.T) {
	const ahead = "pm25 in 6h"
	for _, c := range []struct{ feature, target, key, problem string }{
		{"pm25", ahead, "", ""}, {"pm25 mean 6h", ahead, "", ""}, {"wd", ahead, "", ""}, {"hour", ahead, "", ""},
		{"pm25 lag 1h", "pm25", "", ""}, {"temp", "label", "", ""}, {"temp", "wd in 1h", "", ""},
		{"temp", "wd", "", ""},
		{"humidity", ahead, "features[0]", "unknown input humidity; available inputs: pm25, temp"},
		{"pm25 lag 90m", ahead, "features[0]", "a multiple of the grid step (1h)"},
		{"pm25 lag 10001h", ahead, "features[0]", "a multiple of the grid step (1h)"},
		{"pm25 in 1h", ahead, "features[0]", "must not use values from after the time of its row"},
		{"wd lag 1h", ahead, "features[0]", "has classes and does not support lag"},
		{"wd = S", ahead, "features[0]", `no class "S"`},
		{"temp = N", ahead, "features[0]", `no class "N"`},
		{"label lag 1h", ahead, "features[0]", "can only be used as the target"},
		{"pm25", "pm25", "features[0]", "contains the target"},
		{"pm25 mean 3h", "pm25", "features[0]", "contains the target"},
		{"wd", "wd", "features[0]", "contains the target"},
		{"temp", "humidity", "target", "unknown input humidity; available inputs: pm25, temp"},
		{"temp", "pm25 lag 1h", "target", "use INPUT or INPUT in DURATION"},
		{"temp", "hour sin", "target", "use INPUT or INPUT in DURATION"},
		{"temp", "label in 1h", "target", "the input label has the key wait"},
	} {
		r, found := air(), ProblemList{}
		r.CheckColumns(&found, "task", []string{c.feature}, c.target)
		if got := fmt.Sprint(found.Err()); c.key == "" && found.Err() != nil || c.key != "" &&
			(!strings.HasPrefix(got, "task."+c.key+": ") || !strings.Contains(got, c.problem) ||
				strings.Contains(got, "\n")) {
			t.Errorf("%q for %q: %s", c.feature, c.target, got)
		}
	}
	r, found := air(), ProblemList{}
	r.CheckColumns(&found, "task", []string{"pm25 lag 60m", "hour", "pm25 lag 1h", "hour cos"}, ahead)
	if found.ProblemCount() != 2 {
		t.Errorf("of two columns that are there twice it found %v", found.Err())
	}
}
