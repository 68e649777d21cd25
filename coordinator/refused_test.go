package coordinator_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/internal/testkit/memory"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// TestRefusedSubscriptions simulates a cluster node that cannot reach the other nodes and refuses necessary
// subscriptions. The run must continue over the same connections once the subscriptions are granted.
func TestRefusedSubscriptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var refuses atomic.Bool
		refuses.Store(true)
		var f *federation
		f = newFederation(t, 3, memory.Options{Refuse: func(_, filter string) bool {
			return refuses.Load() && (filter == f.topics.AllAgentToCoordinatorFilter() ||
				filter == f.topics.CoordinatorToAgent("a1"))
		}})
		f.start()
		f.until(time.Hour, "waiting", func() bool { return len(events[round.GatheringExtended](f)) > 2 })
		refuses.Store(false)
		f.until(2*time.Minute, "heard", func() bool { return len(events[round.RoundOpened](f)) > 0 })
		f.finished(time.Hour)
		var told [][]string
		for _, x := range events[host.RefusedSubscriptionsChanged](f, wire.CoordinatorID) {
			told = append(told, x.Filters)
		}
		if want := [][]string{{f.topics.AllAgentToCoordinatorFilter()}, nil}; !slices.EqualFunc(told, want,
			slices.Equal) {
			t.Errorf("the coordinator told of %q, want %q", told, want)
		}
		told = nil
		for _, x := range events[host.RefusedSubscriptionsChanged](f, "a1") {
			told = append(told, x.Filters)
		}
		if want := [][]string{{f.topics.CoordinatorToAgent("a1")}, nil}; !slices.EqualFunc(told, want, slices.Equal) {
			t.Errorf("the agent told of %q, want %q", told, want)
		}
		if others := events[host.RefusedSubscriptionsChanged](f, "a0", "a2"); len(others) > 0 {
			t.Errorf("the others told of %v", others)
		}
	})
}
