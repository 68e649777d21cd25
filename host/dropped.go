package host

import (
	"errors"
	"fmt"
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

// WhyDropped takes an error apart. An error that is not Dropped has the reason otherwise.
func WhyDropped[R ~string](err error, otherwise R) (R, error) {
	if d := (*Dropped[R])(nil); errors.As(err, &d) {
		return d.Reason, d.Err
	}
	return otherwise, err
}
