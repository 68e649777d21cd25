package part

import (
	"slices"
	"testing"
	"time"
)

type starter struct{ started func() }

func (s starter) Start() { s.started() }

type both struct{ starter }

func (both) BeforeWait() {}

// TestImplementing: the order of the list is the order of the calls, and a part is not asked for what it does not
// implement.
func TestImplementing(t *testing.T) {
	var order []string
	called := func(name string) starter { return starter{func() { order = append(order, name) }} }
	parts := PartList{called("one"), "no hook", both{called("two")}, called("three")}
	for s := range PartsImplementing[Starter](parts) {
		s.Start()
	}
	if want := []string{"one", "two", "three"}; !slices.Equal(order, want) {
		t.Errorf("started %q, want %q", order, want)
	}
	if n := len(slices.Collect(PartsImplementing[BeforeWaitHook](parts))); n != 1 {
		t.Errorf("%d parts are called before a wait, want 1", n)
	}
}

// TestEarliestDeadline checks that the earliest deadline wins, and that a zero time does not hide the others.
func TestEarliestDeadline(t *testing.T) {
	var next EarliestDeadline
	next.Add(time.Time{}, true)
	if next.IsSet {
		t.Error("the zero time is a deadline")
	}
	at := time.Unix(100, 0)
	next.Add(at.Add(time.Second), true)
	next.Add(at, true)
	next.Add(at.Add(-time.Second), false)
	next.Add(time.Time{}, true)
	if !next.IsSet || !next.At.Equal(at) {
		t.Errorf("the earliest deadline is %v, want %v", next.At, at)
	}
}
