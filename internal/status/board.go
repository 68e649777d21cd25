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

// Condition is something that needs an operator.
type Condition struct {
	Name     string    `json:"name"`
	Since    time.Time `json:"since"`
	Problem  string    `json:"problem"`
	Remedy   string    `json:"remedy"`
	NotReady bool      `json:"not_ready,omitempty"` // the program is not ready while the condition lasts
}

// Starting is the condition of a daemon that opens its state folder.
var Starting = Condition{Name: "starting", Problem: "the state folder is being opened",
	Remedy: "wait; if it takes long, look at the log", NotReady: true}

// String returns the problem with its remedy.
func (c Condition) String() string { return c.Problem + "; " + c.Remedy }

// Board reads the descriptions of events and keeps the conditions of a program and the values of its status line.
// Status page, HTTP API and readiness show its conditions. Several goroutines may use it at once.
type Board struct {
	now     func() time.Time
	changed chan<- struct{} // may be nil; gets an element after a change, unless it is full

	mu         sync.Mutex
	conditions map[string]Condition // by name
	shown      map[string]string    // by name
}

// NewBoard returns a board without conditions. changed, if not nil, gets an element after each change, unless it is
// full.
func NewBoard(now func() time.Time, changed chan<- struct{}) *Board {
	return &Board{now: now, changed: changed, conditions: map[string]Condition{},
		shown: map[string]string{observe.Connection: "connecting to the broker"}}
}

// Apply takes the conditions and shown values of an event.
func (b *Board) Apply(d *observe.Description) {
	if len(d.Conditions) == 0 && len(d.Shown) == 0 {
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
		now := Condition{c.Name, before.Since, c.Problem, c.Remedy, c.NotReady}
		if !lasted {
			now.Since = b.now()
		}
		b.conditions[c.Name] = now
		changed = changed || now != before
	}
	for _, s := range d.Shown {
		changed = changed || b.shown[s.Name] != s.Value
		b.shown[s.Name] = s.Value
	}
	b.mu.Unlock()
	if changed && b.changed != nil {
		select {
		case b.changed <- struct{}{}:
		default:
		}
	}
}

// Fail begins a condition that no event reports, or changes its texts.
func (b *Board) Fail(c Condition) {
	b.Apply(&observe.Description{Conditions: []observe.Condition{{Name: c.Name, Problem: c.Problem, Remedy: c.Remedy,
		NotReady: c.NotReady}}})
}

// Resolve ends a condition.
func (b *Board) Resolve(name string) {
	b.Apply(&observe.Description{Conditions: []observe.Condition{{Name: name}}})
}

// Conditions returns the conditions that last, in the order of their names.
func (b *Board) Conditions() []Condition {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []Condition
	for _, name := range slices.Sorted(maps.Keys(b.conditions)) {
		all = append(all, b.conditions[name])
	}
	return all
}

// ReadinessErr returns the conditions with which the program is not ready, one a line, or nil.
func (b *Board) ReadinessErr() error {
	var all []string
	for _, c := range b.Conditions() {
		if c.NotReady {
			all = append(all, c.String())
		}
	}
	if len(all) == 0 {
		return nil
	}
	return errors.New(strings.Join(all, "\n"))
}

// Line returns the status line of the service: the connection, what the program does, and its conditions by name.
func (b *Board) Line() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	line := b.shown[observe.Connection]
	if activity := b.shown[observe.Activity]; activity != "" {
		line += "; " + activity
	}
	if len(b.conditions) > 0 {
		line += "; see `status` for: " + observe.JoinNames(slices.Sorted(maps.Keys(b.conditions)))
	}
	return line
}
