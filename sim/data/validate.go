package data

import (
	"errors"
	"fmt"
	"math"
)

// FieldError is a value in a file that cannot be.
type FieldError struct {
	Key     string // its path in the file, "data.inputs"
	Problem string // completes the sentence that Key begins, with the bound
}

// Error returns "key: problem".
func (e *FieldError) Error() string { return e.Key + ": " + e.Problem }

// Validate joins a [*FieldError] for every value that cannot be, with its bound.
func (s *Spec) Validate(agents int) error {
	var errs []error
	need := func(ok bool, key, format string, args ...any) {
		if !ok {
			errs = append(errs, &FieldError{Key: "data." + key, Problem: fmt.Sprintf(format, args...)})
		}
	}
	numbers := func(key string, list []float64, low float64, strict bool, lengths ...int) {
		for _, v := range list {
			need(v > low || !strict && v == low, key, "has %v; want numbers above %v", v, low)
		}
		fits := false
		for _, n := range lengths {
			fits = fits || len(list) == n
		}
		need(fits, key, "has %d numbers; want one of %v", len(list), lengths)
	}
	need(agents > 0, "kind", "%s needs agents of at least 1", s.Kind)
	switch s.Kind {
	case KindLinear:
		need(s.Inputs >= 1, "inputs", "is %d; want at least 1", s.Inputs)
		need(s.Spread >= 0, "spread", "is %v; want 0 or more", s.Spread)
		need(s.Pool == 0 || s.Pool >= 10*s.Inputs, "pool", "is %d; want 0 for fresh samples, or at least 10 rows for each of the %d inputs", s.Pool, s.Inputs)
		need(s.Pool == 0 || len(s.Regressors) == 1 && len(s.NoiseVar) == 1, "pool", "is %d; agents that share rows have one row of regressors and one noise_var", s.Pool)
		numbers("noise_var", s.NoiseVar, 0, false, 1, agents)
		numbers("centre", s.Centre, math.Inf(-1), false, 1, s.Inputs)
		need(len(s.Regressors) == 1 || len(s.Regressors) == agents, "regressors", "has %d rows; want 1, or one for each of the %d agents", len(s.Regressors), agents)
		for _, row := range s.Regressors {
			numbers("regressors", row, 0, true, 1, s.Inputs)
		}
		need(len(s.Optima) == 0 || len(s.Optima) == agents, "optima", "has %d rows; want one for each of the %d agents", len(s.Optima), agents)
		for _, row := range s.Optima {
			numbers("optima", row, math.Inf(-1), false, s.Inputs)
		}
	case KindLogistic, KindBilinear:
		need(s.Variance >= 0, "variance", "is %v; want 0 or more", s.Variance)
		need(s.Ridge >= 0, "ridge", "is %v; want 0 or more", s.Ridge)
		need(s.Kind == KindLogistic || s.Hidden >= 1, "hidden", "is %d; want at least 1", s.Hidden)
		need(len(s.Means) == 0 || len(s.Means) == agents, "means", "has %d rows; want one for each of the %d agents", len(s.Means), agents)
		need(len(s.Means) > 0 || s.Inputs >= 1, "inputs", "is %d; want at least 1", s.Inputs)
		for _, row := range s.Means {
			numbers("means", row, math.Inf(-1), false, len(s.Means[0]))
		}
	case KindRegression:
		need(s.Inputs >= 1, "inputs", "is %d; want at least 1", s.Inputs)
		need(s.Rows >= 1, "rows", "is %d; want at least 1", s.Rows)
		need(s.Deviation > 0, "deviation", "is %v; want a positive number", s.Deviation)
		need(s.Base > 0, "base", "is %v; want a positive number", s.Base)
	case KindQuadratics:
		numbers("eigenvalues", s.Eigenvalues, 0, true, max(1, len(s.Eigenvalues)))
		need(len(s.Centres) == 0 || len(s.Centres) == agents, "centres", "has %d rows; want one for each of the %d agents", len(s.Centres), agents)
		for _, row := range s.Centres {
			numbers("centres", row, math.Inf(-1), false, len(s.Eigenvalues))
		}
	case KindToy:
		numbers("centre", s.Centre, math.Inf(-1), false, max(1, len(s.Centre)))
		need(s.Rows >= 1, "rows", "is %d; want at least 1", s.Rows)
		need(s.Variance >= 0, "variance", "is %v; want 0 or more", s.Variance)
		need(s.Spread >= 0 && s.Spread <= 1, "spread", "is %v; want 0 to 1", s.Spread)
	default:
		need(false, "kind", "is %q; want one of %q", s.Kind, kinds)
	}
	return errors.Join(errs...)
}

// kinds are all kinds, as an error lists them.
var kinds = []Kind{KindLinear, KindLogistic, KindBilinear, KindRegression, KindQuadratics, KindToy}
