package grid

import "github.com/fedmesh/fedmesh/spec"

// NewReadingCheck returns a function that checks single readings of an input. The function returns the value of a
// reading, or the reason for rejecting the reading. It does not detect errors that depend on other readings, such as
// late or duplicate readings.
func NewReadingCheck(in spec.InputSeries, missingValues MissingValues, device DeviceInput) func(Reading) (float64,
	UnusedReason) {
	n := newInputState(in, missingValues, device)
	return n.acceptedValue
}
