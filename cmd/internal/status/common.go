package status

import (
	"math"
	"time"
)

// Link is the connection to the broker.
type Link struct {
	Connected bool      `json:"connected"`
	Since     time.Time `json:"since"`
	Error     string    `json:"error,omitempty"` // of the last loss
}

func (l *Link) change(now time.Time, up bool, err error) {
	*l = Link{Connected: up, Since: now}
	if err != nil {
		l.Error = err.Error()
	}
}

// Refusal is work that was in vain.
type Refusal struct {
	At     time.Time `json:"at"`
	Agent  string    `json:"agent,omitempty"`
	Round  uint64    `json:"round"`
	What   string    `json:"what"`
	Reason string    `json:"reason"`
}

// keep appends to a list of the newest, most at most.
func keep[T any](list []T, most int, x T) []T {
	if list = append(list, x); len(list) > most {
		list = append([]T(nil), list[len(list)-most:]...)
	}
	return list
}

// keptRefusals is the length of the list of them.
const keptRefusals = 10

// KeptLosses is how many rounds the line of losses has.
const KeptLosses = 60

// number is a number that may be unknown, as JSON has no NaN.
func number(x float64) *float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return nil
	}
	return &x
}
