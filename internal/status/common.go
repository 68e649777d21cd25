package status

import (
	"fmt"
	"math"
	"time"
)

// link is the connection to the broker.
type link struct {
	Connected bool      `json:"connected"`
	Since     time.Time `json:"since"`
	Error     string    `json:"error,omitempty"` // of the last loss
	// Back is when an agent connects again that has given up the link, having no part in the round or to a clone.
	Back *time.Time `json:"back,omitempty"`
}

func (l *link) change(now time.Time, up bool, err error) {
	*l = link{Connected: up, Since: now}
	if err != nil {
		l.Error = err.Error()
	}
}

// leave is change for an agent that has given up the link until back.
func (l *link) leave(now, back time.Time) { *l = link{Since: now, Back: &back} }

// state says how the connection is.
func (l *link) state(now time.Time) string {
	switch {
	case l.Connected:
		return "connected for " + span(now.Sub(l.Since))
	case l.Back != nil && now.Before(*l.Back):
		return fmt.Sprintf("away by plan for %s, back in %s, at %s", span(now.Sub(l.Since)), span(l.Back.Sub(now)),
			l.Back.Local().Format(time.DateTime))
	case l.Back != nil:
		return fmt.Sprintf("NOT connected for %s, since it wanted to be back", span(now.Sub(*l.Back)))
	case l.Error != "":
		return fmt.Sprintf("NOT connected for %s: %s", span(now.Sub(l.Since)), l.Error)
	}
	return "NOT connected for " + span(now.Sub(l.Since))
}

// refusal is an update that was refused or left out, a declined round, or an abandoned one.
type refusal struct {
	At     time.Time `json:"at"`
	Agent  string    `json:"agent,omitempty"`
	Round  uint64    `json:"round"`
	What   string    `json:"what"`
	Reason string    `json:"reason"`
}

// keep appends to a list, and drops the oldest elements above most.
func keep[T any](list []T, most int, x T) []T {
	if list = append(list, x); len(list) > most {
		list = append([]T(nil), list[len(list)-most:]...)
	}
	return list
}

// keptRefusals is how many refusals are listed.
const keptRefusals = 10

// KeptLosses is how many rounds the line of losses shows.
const KeptLosses = 60

// number returns nil for NaN and infinities, which JSON does not have.
func number(x float64) *float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return nil
	}
	return &x
}
