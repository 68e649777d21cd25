package host

import (
	"errors"
	"fmt"

	"github.com/fedmesh/fedmesh/wire"
)

// MessageDropError is the error for a message that was dropped. The type parameter R is the type of the program's drop
// reasons.
type MessageDropError[R ~string] struct {
	Reason R
	Err    error
}

func (e *MessageDropError[R]) Error() string { return fmt.Sprintf("%s: %v", e.Reason, e.Err) }

// NewMessageDropError returns a MessageDropError with the given reason and a formatted cause.
func NewMessageDropError[R ~string](reason R, format string, args ...any) error {
	return &MessageDropError[R]{reason, fmt.Errorf(format, args...)}
}

// DropReasonOf returns the reason for which a message was dropped, and the cause. An error that is not a
// MessageDropError is regarded as a decoding error. Its reason is version if the error wraps wire.ErrProtocolVersion,
// and otherwise malformed.
func DropReasonOf[R ~string](err error, malformed, version R) (R, error) {
	if d := (*MessageDropError[R])(nil); errors.As(err, &d) {
		return d.Reason, d.Err
	}
	if errors.Is(err, wire.ErrProtocolVersion) {
		return version, err
	}
	return malformed, err
}
