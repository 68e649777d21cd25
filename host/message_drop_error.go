package host

import (
	"errors"
	"fmt"

	"github.com/fedmesh/fedmesh/wire"
)

// MessageDropError is the error of a message that is not used. R is the program's reasons.
type MessageDropError[R ~string] struct {
	Reason R
	Err    error
}

func (e *MessageDropError[R]) Error() string { return fmt.Sprintf("%s: %v", e.Reason, e.Err) }

// NewMessageDropError makes a Dropped error.
func NewMessageDropError[R ~string](reason R, format string, args ...any) error {
	return &MessageDropError[R]{reason, fmt.Errorf(format, args...)}
}

// DropReasonOf returns the reason for which a message was dropped, and the cause. If err is not a Dropped, the message
// could not be decoded: the reason is version for a message of another protocol version, else malformed.
func DropReasonOf[R ~string](err error, malformed, version R) (R, error) {
	if d := (*MessageDropError[R])(nil); errors.As(err, &d) {
		return d.Reason, d.Err
	}
	if errors.Is(err, wire.ErrProtocolVersion) {
		return version, err
	}
	return malformed, err
}
