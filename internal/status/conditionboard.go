package status

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fedmesh/fedmesh/observe"
)

// Condition is a state of the program that requires an operator's attention.
type Condition struct {
	Name            string    `json:"name"`
	Since           time.Time `json:"since"`
	Problem         string    `json:"problem"`
	Remedy          string    `json:"remedy"`
	BlocksReadiness bool      `json:"not_ready,omitempty"` // true if the program is not ready while the condition lasts
}

// StartingCondition is the condition of a daemon that has not opened its state folder yet.
var StartingCondition = Condition{Name: "starting", Problem: "the program is starting and has not opened its state " +
	"folder yet",
	Remedy: "wait for a moment; if the program does not become ready, check its log", BlocksReadiness: true}

// String returns the problem with its remedy.
func (c Condition) String() string { return c.Problem + "; " + c.Remedy }

// ConditionBoard keeps the active conditions and the status values of a program. The conditions and values come from
// the descriptions of events. The status page, the HTTP API and the readiness check use the board. ConditionBoard is
// safe for concurrent use.
type ConditionBoard struct {
	now     func() time.Time
	changed chan<- struct{} // receives an element after each change unless the channel is full; may be nil

	mu               sync.Mutex
	conditions       map[string]Condition // active conditions by name
	shownValueByName map[string]any
}

// NewBoard returns a board without conditions. After each change, an element is sent to changed unless the channel is
// full or nil.
func NewBoard(now func() time.Time, changed chan<- struct{}) *ConditionBoard {
	return &ConditionBoard{now: now, changed: changed, conditions: map[string]Condition{},
		shownValueByName: map[string]any{observe.ConnectionStatus: "connecting to the broker"}}
}

// ApplyDescription applies the conditions and status values of an event.
func (b *ConditionBoard) ApplyDescription(d *observe.EventDescription) {
	if len(d.Conditions) == 0 && len(d.StatusValues) == 0 {
		return
	}
	b.mu.Lock()
	changed := false
	for _, c := range d.Conditions {
		before, lasted := b.conditions[c.Name]
		if c.Problem == "" {
			delete(b.conditions, c.Name)
			changed = changed || lasted
			continue
		}
		now := Condition{c.Name, before.Since, c.Problem, c.Remedy, c.BlocksReadiness}
		if !lasted {
			now.Since = b.now()
		}
		b.conditions[c.Name] = now
		changed = changed || now != before
	}
	for _, s := range d.StatusValues {
		before := b.shownText(s.Name)
		if b.shownValueByName[s.Name] = s.Value; s.Value == nil {
			delete(b.shownValueByName, s.Name)
		}
		// Only texts appear in the status line, which must be updated immediately.
		changed = changed || before != b.shownText(s.Name)
	}
	b.mu.Unlock()
	if changed && b.changed != nil {
		select {
		case b.changed <- struct{}{}:
		default:
		}
	}
}

// RaiseCondition raises a condition that no event reports. If the condition is already active, RaiseCondition replaces
// its texts.
func (b *ConditionBoard) RaiseCondition(c Condition) {
	b.ApplyDescription(&observe.EventDescription{Conditions: []observe.OperatorCondition{{Name: c.Name,
		Problem: c.Problem, Remedy: c.Remedy,
		BlocksReadiness: c.BlocksReadiness}}})
}

// ResolveCondition removes the active condition with the given name.
func (b *ConditionBoard) ResolveCondition(name string) {
	b.ApplyDescription(&observe.EventDescription{Conditions: []observe.OperatorCondition{{Name: name}}})
}

// Conditions returns the active conditions in the order of their names.
func (b *ConditionBoard) Conditions() []Condition {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []Condition
	for _, name := range slices.Sorted(maps.Keys(b.conditions)) {
		all = append(all, b.conditions[name])
	}
	return all
}

// ReadinessErr returns an error that lists the conditions that make the program not ready, or nil.
func (b *ConditionBoard) ReadinessErr() error {
	var all []string
	for _, c := range b.Conditions() {
		if c.BlocksReadiness {
			all = append(all, c.String())
		}
	}
	if len(all) == 0 {
		return nil
	}
	return errors.New(strings.Join(all, "\n"))
}

// StatusLine returns the status line of the service: the state of the broker connection, the current activity, and the
// names of the active conditions.
func (b *ConditionBoard) StatusLine() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	line := b.shownText(observe.ConnectionStatus)
	if activity := b.shownText(observe.ActivityStatus); activity != "" {
		line += "; " + activity
	}
	if len(b.conditions) > 0 {
		line += "; run `status` for details of: " + observe.JoinNames(slices.Sorted(maps.Keys(b.conditions)))
	}
	return line
}

// ShownTexts returns the status texts from events, by name, without the texts of the status line. It returns nil if the
// board has no other texts. A status page shows one line for each text, so a new event needs no change of the page.
func (b *ConditionBoard) ShownTexts() map[string]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var texts map[string]string
	for name := range b.shownValueByName {
		text := b.shownText(name)
		if text == "" || name == observe.ConnectionStatus || name == observe.ActivityStatus {
			continue
		}
		if texts == nil {
			texts = map[string]string{}
		}
		texts[name] = text
	}
	return texts
}

// shownText returns the status text with the given name, or "" if there is none. The caller must hold b.mu.
func (b *ConditionBoard) shownText(name string) string {
	text, _ := b.shownValueByName[name].(string)
	return text
}

// ShownValue returns the status value with the given name. If the board has no such value of type T, it returns the
// zero value.
func ShownValue[T any](b *ConditionBoard, name string) T {
	b.mu.Lock()
	defer b.mu.Unlock()
	value, _ := b.shownValueByName[name].(T)
	return value
}
