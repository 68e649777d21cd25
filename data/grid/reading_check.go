package grid

import "github.com/fedmesh/fedmesh/spec"

// NewReadingCheck returns a function that checks single readings of an input. The function returns the value or the
// reason for rejecting it. It does not detect errors that depend on other readings, such as late or duplicate ones.
func NewReadingCheck(in spec.InputSeries, missingValues MissingValues, device DeviceInput) func(Reading) (float64,
	UnusedReason) {
	n := newInputState(in, missingValues, device)
	return n.acceptedValue
}
