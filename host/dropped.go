package host

import (
	"errors"
	"fmt"

	"github.com/fedmesh/fedmesh/wire"
)

// Dropped is the error of a message that is not used. R is the program's reasons.
type Dropped[R ~string] struct {
	Reason R
	Err    error
}

func (e *Dropped[R]) Error() string { return fmt.Sprintf("%s: %v", e.Reason, e.Err) }

// Drop makes a Dropped error.
func Drop[R ~string](reason R, format string, args ...any) error {
	return &Dropped[R]{reason, fmt.Errorf(format, args...)}
}

// WhyDropped takes an error apart. An error that is not Dropped is of a message that cannot be read: it is malformed,
// or of another version of the protocol.
func WhyDropped[R ~string](err error, malformed, version R) (R, error) {
	if d := (*Dropped[R])(nil); errors.As(err, &d) {
		return d.Reason, d.Err
	}
	if errors.Is(err, wire.ErrVersion) {
		return version, err
	}
	return malformed, err
}
