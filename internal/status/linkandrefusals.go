package status

import (
	"fmt"
	"time"
)

// Link describes the connection to the broker.
type Link struct {
	Connected     bool      `json:"connected"`
	Since         time.Time `json:"since"`
	LastLossError string    `json:"error,omitempty"` // error of the last connection loss
	// ReconnectAt is the time at which an agent that has disconnected on purpose will connect again. An agent
	// disconnects on purpose if it is not in the round, or if another device with the same identity has taken over the
	// session. Otherwise ReconnectAt is nil.
	ReconnectAt *time.Time `json:"back,omitempty"`
}

// SetConnected records that the connection was established or lost. err is the reason for the loss.
func (l *Link) SetConnected(now time.Time, up bool, err error) {
	*l = Link{Connected: up, Since: now}
	if err != nil {
		l.LastLossError = err.Error()
	}
}

// SetPaused records that the agent has disconnected on purpose and reconnects at the time back.
func (l *Link) SetPaused(now, back time.Time) { *l = Link{Since: now, ReconnectAt: &back} }

// describe returns a text about the connection.
func (l *Link) describe(now time.Time) string {
	switch {
	case l.Connected:
		return "connected for " + FormatDuration(now.Sub(l.Since))
	case l.ReconnectAt != nil && now.Before(*l.ReconnectAt):
		return fmt.Sprintf("disconnected on purpose for %s, will reconnect in %s, at %s",
			FormatDuration(now.Sub(l.Since)),
			FormatDuration(l.ReconnectAt.Sub(now)),
			l.ReconnectAt.Local().Format(time.DateTime))
	case l.ReconnectAt != nil:
		return fmt.Sprintf("NOT connected to the broker: the planned reconnection is %s overdue",
			FormatDuration(now.Sub(*l.ReconnectAt)))
	case l.LastLossError != "":
		return fmt.Sprintf("NOT connected to the broker for %s: %s", FormatDuration(now.Sub(l.Since)), l.LastLossError)
	}
	return "NOT connected to the broker for " + FormatDuration(now.Sub(l.Since))
}

// Refusal describes an update that was refused or omitted, or a round that was declined or abandoned.
type Refusal struct {
	At     time.Time `json:"at"`
	Agent  string    `json:"agent,omitempty"`
	Round  uint64    `json:"round"`
	Kind   string    `json:"what"`
	Reason string    `json:"reason"`
}

// AppendBounded appends x to list and returns the newest elements of the result. The parameter most is the maximum
// number of elements.
func AppendBounded[T any](list []T, most int, x T) []T {
	if list = append(list, x); len(list) > most {
		list = append([]T(nil), list[len(list)-most:]...)
	}
	return list
}

// KeptRefusals is the maximum number of refusals that the status page lists.
const KeptRefusals = 10

// KeptLosses is the maximum number of rounds whose loss the status page shows.
const KeptLosses = 60
