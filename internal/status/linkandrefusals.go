package status

import (
	"fmt"
	"time"
)

// Link is the connection to the broker.
type Link struct {
	Connected     bool      `json:"connected"`
	Since         time.Time `json:"since"`
	LastLossError string    `json:"error,omitempty"` // of the last loss
	// ReconnectAt is when an agent connects again that has given up the link, having no part in the round or to a
	// clone.
	ReconnectAt *time.Time `json:"back,omitempty"`
}

// SetConnected notes at the time now that the connection was made, or lost because of err.
func (l *Link) SetConnected(now time.Time, up bool, err error) {
	*l = Link{Connected: up, Since: now}
	if err != nil {
		l.LastLossError = err.Error()
	}
}

// SetPaused is change for an agent that has given up the link until back.
func (l *Link) SetPaused(now, back time.Time) { *l = Link{Since: now, ReconnectAt: &back} }

// describe says how the connection is.
func (l *Link) describe(now time.Time) string {
	switch {
	case l.Connected:
		return "connected for " + FormatDuration(now.Sub(l.Since))
	case l.ReconnectAt != nil && now.Before(*l.ReconnectAt):
		return fmt.Sprintf("away by plan for %s, back in %s, at %s", FormatDuration(now.Sub(l.Since)),
			FormatDuration(l.ReconnectAt.Sub(now)),
			l.ReconnectAt.Local().Format(time.DateTime))
	case l.ReconnectAt != nil:
		return fmt.Sprintf("NOT connected for %s, since it wanted to be back", FormatDuration(now.Sub(*l.ReconnectAt)))
	case l.LastLossError != "":
		return fmt.Sprintf("NOT connected for %s: %s", FormatDuration(now.Sub(l.Since)), l.LastLossError)
	}
	return "NOT connected for " + FormatDuration(now.Sub(l.Since))
}

// Refusal is an update that was refused or left out, a declined round, or an abandoned one.
type Refusal struct {
	At     time.Time `json:"at"`
	Agent  string    `json:"agent,omitempty"`
	Round  uint64    `json:"round"`
	Kind   string    `json:"what"`
	Reason string    `json:"reason"`
}

// AppendBounded appends to a list, and drops the oldest elements above most.
func AppendBounded[T any](list []T, most int, x T) []T {
	if list = append(list, x); len(list) > most {
		list = append([]T(nil), list[len(list)-most:]...)
	}
	return list
}

// KeptRefusals is how many refusals are listed.
const KeptRefusals = 10

// KeptLosses is how many rounds the line of losses shows.
const KeptLosses = 60
