package grid

import "github.com/fedmesh/fedmesh/spec"

// NewReadingCheck returns a function that says what a grid makes of a reading of an input by itself: its value, or why
// it is not used. It knows nothing of other readings, so none is late or twice.
func NewReadingCheck(in spec.InputSeries, missingValues MissingValues, deviceRange []float64) func(Reading) (float64,
	UnusedReason) {
	n := newInputState(in, missingValues, deviceRange)
	return n.acceptedValue
}
