package mqtt_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/mqtt"
)

// R8: the sessions of a broker that restarts come back one by one, over the
// longest delay. TestHerdSpreadsOut has 500 over the usual 16 s.
func TestR8SessionsComeBackSpreadOut(t *testing.T) {
	t.Parallel()
	const clients, longest = 50, 2 * time.Second
	b := newEmbedded(t, 128<<10)
	b.start(t)
	t.Cleanup(func() { b.stop() })
	var sessions []*mqtt.Session
	for i := range clients {
		sessions = append(sessions, dial(t, mqtt.Options{
			URL: b.url(), ClientID: fmt.Sprint(i), MaxReconnectDelay: longest, Rand: rand.New(rand.NewPCG(uint64(i), 8)),
		}))
	}
	b.stop()
	for _, s := range sessions {
		wantDown(t, s)
	}
	b.start(t)
	back := make(chan time.Time, clients)
	for _, s := range sessions {
		go func() {
			for range s.Events() { // Up is the only one, until Close
				back <- time.Now()
			}
		}()
	}
	var times []time.Time
	for range clients {
		select {
		case at := <-back:
			times = append(times, at)
		case <-time.After(patience):
			t.Fatalf("%d of %d came back", len(times), clients)
		}
	}
	slices.SortFunc(times, time.Time.Compare)
	if all := times[clients-1].Sub(times[0]); all < longest/2 {
		t.Errorf("all came back within %v", all)
	}
	for i := range clients / 2 {
		if half := times[i+clients/2].Sub(times[i]); half < longest/10 {
			t.Errorf("half of them came back within %v", half)
		}
	}
}
