package host

import (
	"errors"
	"fmt"

	"github.com/fedmesh/fedmesh/wire"
)

// DropError is the error of a message that is not used. R is the program's reasons.
type DropError[R ~string] struct {
	Reason R
	Err    error
}

func (e *DropError[R]) Error() string { return fmt.Sprintf("%s: %v", e.Reason, e.Err) }

// NewDropError makes a Dropped error.
func NewDropError[R ~string](reason R, format string, args ...any) error {
	return &DropError[R]{reason, fmt.Errorf(format, args...)}
}

// DropReason returns the reason for which a message was dropped, and the cause. If err is not a Dropped, the message
// could not be decoded: the reason is version for a message of another protocol version, else malformed.
func DropReason[R ~string](err error, malformed, version R) (R, error) {
	if d := (*DropError[R])(nil); errors.As(err, &d) {
		return d.Reason, d.Err
	}
	if errors.Is(err, wire.ErrVersion) {
		return version, err
	}
	return malformed, err
}
