package spec

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// RowRecipe contains the rules for making rows from readings: a time grid and the inputs. The features and the target
// of the task are the names of the columns (see [ColumnExpression]). With the zero value, each line of the source is a
// row.
type RowRecipe struct {
	Grid   TimeGrid
	Inputs []InputSeries
}

// TimeGrid contains the settings under the key "grid" of a task. The grid points are the multiples of Step in UTC. The
// grid point t represents the readings in the interval (t − Step, t].
type TimeGrid struct {
	Step time.Duration `yaml:"step"`
	// Lateness is the maximum age of a reading on arrival, relative to the newest reading of the same source.
	Lateness time.Duration `yaml:"lateness"`
	// TimeZone is the time zone of the columns hour and weekday, such as "Europe/Berlin"; empty means UTC.
	TimeZone string `yaml:"zone"`
}

// InputSeries is a quantity that devices measure. It is configured by an entry under the key "inputs" of a task.
type InputSeries struct {
	Name string `yaml:"name"`
	Unit string `yaml:"unit"` // unit of the values in rows, to which devices convert their readings; may be empty
	// ValidRange contains the minimum and the maximum valid value. Readings outside this range are ignored. If
	// ValidRange is empty, all finite values are valid.
	ValidRange []float64 `yaml:"range"`
	// Resampling is the method for computing the value of a grid point. If it is empty, the method is mean, or last for
	// an input with classes.
	Resampling Resampling     `yaml:"join"`
	Transform  ValueTransform `yaml:"scale"` // function that is applied to the values; empty means none
	// Classes contains the possible texts of a non-numeric input. The value of a reading is the index of its text in
	// Classes.
	Classes []string `yaml:"classes"`
	// LabelLateness is the additional time to wait for late labels. It is allowed only for an input that is used as the
	// target.
	LabelLateness time.Duration `yaml:"wait"`
	// MaxAge is the maximum age of a reading that represents a grid point. It is set if and only if Resampling is
	// ResampleHeld.
	MaxAge time.Duration `yaml:"max_age"`
	// StuckAfter is the time after which unchanged readings are ignored until the value changes, because the sensor may
	// be stuck. The value 0 disables the check.
	StuckAfter time.Duration `yaml:"stuck"`
	// MaxJump is the maximum change of the value per grid step; 0 means no limit. After a larger change, readings are
	// ignored until three consecutive readings agree.
	MaxJump float64 `yaml:"jump"`
}

// Resampling is the method for computing the value of a grid point from the readings in its interval.
type Resampling string

// Resampling methods. A grid point without readings has no value, with two exceptions: ResampleHeld uses an earlier
// reading, and a count is 0 after the input's first reading.
const (
	ResampleMean  Resampling = "mean"
	ResampleLast  Resampling = "last" // value of the newest reading in the interval
	ResampleMax   Resampling = "max"
	ResampleMin   Resampling = "min"
	ResampleSum   Resampling = "sum"
	ResampleCount Resampling = "count" // number of readings in the interval
	// ResampleHeld is for sensors that report only changes. The value of a grid point is the value of the newest
	// reading, even if the reading belongs to an earlier grid point, up to the age MaxAge.
	ResampleHeld Resampling = "held"
)

var resamplings = []Resampling{ResampleMean, ResampleLast, ResampleMax, ResampleMin, ResampleSum, ResampleCount,
	ResampleHeld}

// UnmarshalText parses a resampling method.
func (j *Resampling) UnmarshalText(text []byte) error { return parseEnum(j, text, resamplings) }

// Validate returns an error if the resampling method is unknown.
func (j Resampling) Validate() error { return checkEnum(j, resamplings) }

// ValueTransform is the function applied to the resampled value of a grid point, before lags and windows.
type ValueTransform string

// Functions that can be applied to values.
const (
	TransformNone  ValueTransform = "none"
	TransformLog1p ValueTransform = "log1p" // natural logarithm ln(1 + x), for values x above −1
)

var valueTransforms = []ValueTransform{TransformNone, TransformLog1p}

// UnmarshalText parses a value transform.
func (s *ValueTransform) UnmarshalText(text []byte) error { return parseEnum(s, text, valueTransforms) }

// Validate returns an error if the value transform is unknown.
func (s ValueTransform) Validate() error { return checkEnum(s, valueTransforms) }

// Limits of a recipe.
const (
	// MaxInputs is the maximum number of inputs of a task.
	MaxInputs = 256
	// MaxClasses is the maximum number of classes of an input.
	MaxClasses = 256
	// MaxSpanPoints is the maximum number of grid points that a column, the delay of a label or a lateness may span.
	MaxSpanPoints = 10_000
	// MaxGridDuration is the maximum duration in a recipe, because messages encode durations as 32-bit milliseconds.
	MaxGridDuration time.Duration = math.MaxUint32 * time.Millisecond

	maxTextBytes = 64 // maximum length of a name, unit, class or time zone, in bytes
)

// WithDefaults returns a copy of the recipe with default values for empty fields.
func (r RowRecipe) WithDefaults() RowRecipe {
	inputs := make([]InputSeries, len(r.Inputs))
	for i, in := range r.Inputs {
		if in.Resampling == "" {
			in.Resampling = ResampleMean
			if len(in.Classes) > 0 {
				in.Resampling = ResampleLast
			}
		}
		if in.Transform == "" {
			in.Transform = TransformNone
		}
		inputs[i] = in
	}
	if len(inputs) == 0 {
		inputs = nil
	}
	return RowRecipe{r.Grid, inputs}
}

// InputIndex returns the index of the input with the given name, or −1 if there is no such input.
func (r *RowRecipe) InputIndex(name string) int {
	for i := range r.Inputs {
		if r.Inputs[i].Name == name {
			return i
		}
	}
	return -1
}

// Check validates the grid and the inputs of a recipe whose defaults are set, and reports errors under the task's
// configuration key. A recipe without inputs must be the zero value.
func (r *RowRecipe) Check(c *ProblemList, key string) {
	g := key + ".grid"
	if len(r.Inputs) == 0 {
		c.Require(r.Grid == TimeGrid{}, g, "this key is set, but %s.inputs is empty: add inputs or remove this key",
			key)
		return
	}
	step := r.Grid.Step
	c.Require(step >= time.Millisecond && step <= MaxGridDuration && step%time.Millisecond == 0, g+".step",
		"invalid value %s: must be between 1ms and %s, in whole milliseconds",
		step, formatShortDuration(MaxGridDuration))
	r.checkGridDuration(c, g+".lateness", r.Grid.Lateness)
	c.Require(len(r.Grid.TimeZone) <= maxTextBytes && r.Grid.TimeZone != "Local", g+".zone",
		"invalid value %q: use a time zone such as Europe/Berlin, which is the same on every device", r.Grid.TimeZone)
	c.Require(len(r.Inputs) <= MaxInputs, key+".inputs", "the list has %d inputs, but at most %d are allowed",
		len(r.Inputs), MaxInputs)
	for i := range r.Inputs {
		in, at := &r.Inputs[i], fmt.Sprintf("%s.inputs[%d]", key, i)
		in.check(c, at)
		r.checkGridDuration(c, at+".wait", in.LabelLateness)
		r.checkGridDuration(c, at+".max_age", in.MaxAge)
		c.Require(in.Resampling != ResampleHeld || in.MaxAge >= r.Grid.Step, at+".max_age",
			"invalid value %s: must be at least grid.step (%s) if join is held", in.MaxAge, r.Grid.Step)
		r.checkGridDuration(c, at+".stuck", in.StuckAfter)
		c.Require(r.InputIndex(in.Name) == i, at+".name", "duplicate name %q: an earlier input has the same name",
			in.Name)
	}
}

// checkGridDuration validates a duration of the recipe and reports errors under key.
func (r *RowRecipe) checkGridDuration(c *ProblemList, key string, d time.Duration) {
	most := MaxGridDuration
	if step := r.Grid.Step; step >= time.Millisecond && step < MaxGridDuration/MaxSpanPoints {
		most = MaxSpanPoints * step
	}
	c.Require(d >= 0 && d <= most && d%time.Millisecond == 0, key, "invalid value %s: must be between 0 and %s, in "+
		"whole milliseconds", d,
		formatShortDuration(most))
}

func (in *InputSeries) check(c *ProblemList, key string) {
	c.Require(isValidInputName(in.Name), key+".name",
		"invalid name %q: use 1 to %d letters, digits, _ - or ., but not hour or weekday",
		in.Name, maxTextBytes)
	c.Require(isPrintableText(in.Unit), key+".unit", "invalid value %q: must have at most %d printable bytes", in.Unit,
		maxTextBytes)
	c.AddError(key+".join", in.Resampling.Validate())
	c.AddError(key+".scale", in.Transform.Validate())
	n, two := len(in.Classes), len(in.ValidRange) == 2
	c.Require(len(in.ValidRange) == 0 || two && isFinite(in.ValidRange[0]) && isFinite(in.ValidRange[1]) &&
		in.ValidRange[0] < in.ValidRange[1],
		key+".range", "invalid value %v: must have the form [MINIMUM, MAXIMUM]", in.ValidRange)
	c.Require(in.Transform != TransformLog1p || !two || in.ValidRange[0] > -1, key+".range",
		"invalid value %v: the minimum must be above -1 with the scale log1p", in.ValidRange)
	c.Require(in.MaxJump >= 0 && isFinite(in.MaxJump), key+".jump", "invalid value %v: must be a positive change, or "+
		"0 for no limit",
		in.MaxJump)
	c.Require(in.LabelLateness == 0 || in.StuckAfter == 0 && in.MaxJump == 0, key+".wait",
		"this key is set to %s, but an input with wait does not support stuck or jump",
		in.LabelLateness)
	c.Require(in.Resampling == ResampleHeld || in.MaxAge == 0, key+".max_age",
		"this key is set to %s, but requires join: held", in.MaxAge)
	c.Require(in.Resampling != ResampleHeld || in.LabelLateness == 0, key+".wait",
		"this key is set to %s, but an input with join: held does not support wait", in.LabelLateness)
	if n == 0 {
		return
	}
	c.Require(in.MaxJump == 0, key+".jump", "this key is set to %v, but an input with classes does not support this "+
		"key: remove it",
		in.MaxJump)
	c.Require(n >= 2 && n <= MaxClasses, key+".classes", "the list has %d classes, but must have between 2 and %d",
		n, MaxClasses)
	c.Require(in.Resampling == ResampleLast || in.Resampling == ResampleHeld, key+".join",
		"invalid value %s: an input with classes requires last or held", in.Resampling)
	c.Require(in.Transform == TransformNone, key+".scale", "invalid value %s: an input with classes requires none",
		in.Transform)
	c.Require(len(in.ValidRange) == 0, key+".range", "this key is set to %v, but an input with classes does not "+
		"support this key: remove it", in.ValidRange)
	seen := make(map[string]bool, n)
	for i, class := range in.Classes {
		c.Require(class != "" && class == strings.TrimSpace(class) && isPrintableText(class) && !seen[class],
			fmt.Sprintf("%s.classes[%d]", key, i),
			"invalid class %q: must be a unique text of 1 to %d printable bytes without surrounding space", class,
			maxTextBytes)
		seen[class] = true
	}
}

func isFinite(x float64) bool { return x-x == 0 }

func isValidInputName(s string) bool {
	if s == "" || len(s) > maxTextBytes || s == calendarHour || s == calendarWeekday {
		return false
	}
	for _, c := range []byte(s) {
		if (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') && c != '_' && c != '-' && c != '.' {
			return false
		}
	}
	return true
}

// isPrintableText reports whether a text is valid UTF-8 without control characters and within maxTextBytes.
func isPrintableText(s string) bool {
	return len(s) <= maxTextBytes && strings.ToValidUTF8(s, "") == s && !strings.ContainsFunc(s, func(r rune) bool {
		return r < ' ' || r == 0x7f
	})
}
