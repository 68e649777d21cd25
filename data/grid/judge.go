package grid

import "github.com/fedmesh/fedmesh/spec"

// Judge returns a function that says what a grid makes of a reading of an input by itself: its value, or why it is not
// used. It knows nothing of other readings, so none is late or twice.
func Judge(in spec.Input) func(Reading) (float64, Reason) { return (&input{Input: in}).value }
