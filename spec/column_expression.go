package spec

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// ColumnExpression is a column of rows that are made from readings. Its text is the column's name in a task:
//
//	pm25              the value at t
//	pm25 lag 3h       the value at t − 3h
//	pm25 mean 6h      the mean over the grid points of the 6h up to t; also min, max and std (÷ n)
//	hour sin          the sine of the time of day at t in the grid's zone, with a period of one day; also cos
//	weekday sin       the sine of the time of the week, from Monday on; also cos
//	wd = NNE          1 if the value at t is that class, otherwise 0
//	pm25 in 6h        the value at t + 6h, as a target only
//
// All values are resampled and transformed values at grid points.
type ColumnExpression struct {
	InputName   string          // name of an input, or one of the calendar columns "hour" and "weekday"
	Operation   ColumnOperation // operation on the input; empty for the value itself
	LagOrWindow time.Duration
	Class       string
}

// ColumnOperation is the operator after the input's name in a column expression, such as "lag".
type ColumnOperation string

// Operators of column expressions.
const (
	OperationLag     ColumnOperation = "lag"
	OperationMean    ColumnOperation = "mean"
	OperationMin     ColumnOperation = "min"
	OperationMax     ColumnOperation = "max"
	OperationStd     ColumnOperation = "std"
	OperationHorizon ColumnOperation = "in"
	OperationIsClass ColumnOperation = "="
	OperationSin     ColumnOperation = "sin"
	OperationCos     ColumnOperation = "cos"
)

const (
	calendarHour    = "hour"
	calendarWeekday = "weekday"
)

// durationOperations lists the operators that take a duration as argument.
var durationOperations = []ColumnOperation{OperationLag, OperationMean, OperationMin, OperationMax, OperationStd,
	OperationHorizon}

// IsCalendar reports whether the column depends only on the time of the row, such as "hour" and "weekday".
func (c ColumnExpression) IsCalendar() bool {
	return c.InputName == calendarHour || c.InputName == calendarWeekday
}

// IsWindow reports whether the column aggregates the input's values over a time window.
func (c ColumnExpression) IsWindow() bool {
	return c.Operation == OperationMean || c.Operation == OperationMin || c.Operation == OperationMax ||
		c.Operation == OperationStd
}

// String returns the name of the column.
func (c ColumnExpression) String() string {
	switch {
	case c.Operation == "":
		return c.InputName
	case c.Operation == OperationIsClass:
		return c.InputName + " = " + c.Class
	case slices.Contains(durationOperations, c.Operation):
		return fmt.Sprintf("%s %s %s", c.InputName, c.Operation, formatShortDuration(c.LagOrWindow))
	}
	return c.InputName + " " + string(c.Operation)
}

// formatShortDuration formats d without trailing zero units: 1h30m instead of 1h30m0s.
func formatShortDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// ParseColumnExpression parses the name of a column. It does not check that the input exists.
func ParseColumnExpression(name string) (ColumnExpression, error) {
	input, rest, more := strings.Cut(name, " ")
	c := ColumnExpression{InputName: input}
	if !c.IsCalendar() && !isValidInputName(input) {
		return ColumnExpression{}, fmt.Errorf("%q does not start with the name of an input", name)
	}
	if !more {
		if c.IsCalendar() {
			return ColumnExpression{}, fmt.Errorf("%q has two columns: use %s sin or %s cos", name, name, name)
		}
		return c, nil
	}
	by, rest, more := strings.Cut(rest, " ")
	c.Operation = ColumnOperation(by)
	switch {
	case c.IsCalendar():
		if more || c.Operation != OperationSin && c.Operation != OperationCos {
			return ColumnExpression{}, fmt.Errorf("%q: use %s sin or %s cos", name, input, input)
		}
	case c.Operation == OperationIsClass && more:
		c.Class = rest
	case slices.Contains(durationOperations, c.Operation) && more:
		span, err := time.ParseDuration(rest)
		if err != nil || span <= 0 {
			return ColumnExpression{}, fmt.Errorf("%q: expected a positive duration such as 30m or 6h, got %q",
				name, rest)
		}
		c.LagOrWindow = span
	default:
		return ColumnExpression{},
			fmt.Errorf("invalid column %q: use INPUT, INPUT lag|mean|min|max|std|in DURATION, or INPUT = CLASS", name)
	}
	return c, nil
}

// ExpandFeatures replaces abbreviated features by full column names. It replaces the calendar columns hour and weekday
// by their sine and cosine, and an input with classes by one column per class.
func (r *RowRecipe) ExpandFeatures(features []string) []string {
	var all []string
	for _, name := range features {
		i := r.InputIndex(name)
		switch {
		case name == calendarHour || name == calendarWeekday:
			all = append(all, name+" sin", name+" cos")
		case i >= 0 && len(r.Inputs[i].Classes) > 0:
			for _, class := range r.Inputs[i].Classes {
				all = append(all, ColumnExpression{InputName: name, Operation: OperationIsClass, Class: class}.String())
			}
		default:
			all = append(all, name)
		}
	}
	return all
}

// CheckColumns validates the features and the target of a valid recipe, and reports errors under the task's
// configuration key. The features may be abbreviated.
func (r *RowRecipe) CheckColumns(c *ProblemList, key string, features []string, target string) {
	var goal ColumnExpression
	var err error
	if target != "" { // Check the target only if the model has one.
		if goal, err = r.parseKnownColumn(target); err == nil {
			err = r.checkTarget(goal)
		}
	}
	c.AddError(key+".target", err)
	known := err == nil
	seen := map[ColumnExpression]bool{}
	for i, short := range features {
		at := fmt.Sprintf("%s.features[%d]", key, i)
		for _, name := range r.ExpandFeatures([]string{short}) {
			col, err := r.parseKnownColumn(name)
			if err == nil {
				err = r.checkFeature(col)
			}
			if err == nil && known {
				err = r.checkTargetLeak(col, goal)
			}
			if c.AddError(at, err); err != nil {
				break // Report only the first error, because all columns have the same error.
			}
			c.Require(!seen[col], at, "the column %q is listed twice", name)
			seen[col] = true
		}
	}
}

// parseKnownColumn parses a column and checks that its input exists and supports the operation.
func (r *RowRecipe) parseKnownColumn(name string) (ColumnExpression, error) {
	c, err := ParseColumnExpression(name)
	if err != nil || c.IsCalendar() {
		return c, err
	}
	i := r.InputIndex(c.InputName)
	if i < 0 {
		return c, fmt.Errorf("%q: unknown input %s; available inputs: %s", name, c.InputName, r.inputNames())
	}
	classes := r.Inputs[i].Classes
	switch {
	case c.Operation == OperationIsClass && !slices.Contains(classes, c.Class):
		return c, fmt.Errorf("%q: the input %s has no class %q", name, c.InputName, c.Class)
	case len(classes) > 0 && c.Operation != OperationIsClass && c.Operation != "" && c.Operation != OperationHorizon:
		return c, fmt.Errorf("%q: the input %s has classes and does not support %s", name, c.InputName, c.Operation)
	case c.LagOrWindow%r.Grid.Step != 0 || c.LagOrWindow/r.Grid.Step > MaxSpanPoints:
		return c, fmt.Errorf("%q: the duration must be a multiple of the grid step (%s) and at most %d steps", name,
			formatShortDuration(r.Grid.Step), MaxSpanPoints)
	}
	return c, nil
}

func (r *RowRecipe) checkFeature(c ColumnExpression) error {
	if c.Operation == OperationHorizon {
		return fmt.Errorf("%q: a feature must not use values from after the time of its row", c)
	}
	return nil
}

func (r *RowRecipe) checkTarget(c ColumnExpression) error {
	if c.IsCalendar() || c.Operation != "" && c.Operation != OperationHorizon {
		return fmt.Errorf("invalid target %q: use INPUT or INPUT in DURATION", c)
	}
	if in := r.Inputs[r.InputIndex(c.InputName)]; c.Operation == OperationHorizon && in.LabelLateness > 0 {
		return fmt.Errorf("%q: the input %s has the key wait, so its readings belong to the time of the row: use %q", c,
			c.InputName,
			c.InputName)
	}
	return nil
}

// checkTargetLeak returns an error if the feature c reveals the target value, which the model must predict.
func (r *RowRecipe) checkTargetLeak(c, target ColumnExpression) error {
	switch {
	case !c.IsCalendar() && r.Inputs[r.InputIndex(c.InputName)].LabelLateness > 0:
		return fmt.Errorf("%q: the input %s has the key wait and can only be used as the target", c, c.InputName)
	case target.Operation == "" && c.InputName == target.InputName && c.Operation != OperationLag:
		return fmt.Errorf("%q contains the target %q: use a lag, or a target at a later time", c, target)
	}
	return nil
}

// inputNames returns the names of the inputs for an error message.
func (r *RowRecipe) inputNames() string {
	const most = 16
	var names []string
	for i := range r.Inputs[:min(most, len(r.Inputs))] {
		names = append(names, r.Inputs[i].Name)
	}
	text := strings.Join(names, ", ")
	if len(r.Inputs) > most {
		text += fmt.Sprintf(" and %d more", len(r.Inputs)-most)
	}
	return text
}
