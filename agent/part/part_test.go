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

// TestImplementing checks that the agent calls parts in the order of the list, and calls only parts that implement the
// hook.
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

// TestZeroDeadline checks that a zero deadline, which is due immediately, does not hide the deadlines of other parts.
func TestZeroDeadline(t *testing.T) {
	var next EarliestDeadline
	next.Add(time.Unix(60, 0), true)
	next.Add(time.Time{}, false)
	if want := time.Unix(60, 0); !next.IsSet || !next.At.Equal(want) {
		t.Errorf("deadline %v, want %v", next.At, want)
	}
	next.Add(time.Time{}, true)
	if next.At.IsZero() || next.At.After(time.Unix(0, 0)) {
		t.Errorf("deadline %v, want one in the past that is not zero", next.At)
	}
}
