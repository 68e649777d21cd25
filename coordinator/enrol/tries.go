package enrol

import (
	"net/netip"
	"sync"
	"time"
)

const (
	triesEvery = time.Minute
	mostTries  = 5
	mostSeen   = 1 << 15 // addresses with wrong tries in memory, twice
)

// tries counts wrong tries by source: an address of IPv4, or a network /64 of IPv6. It may be used from several
// goroutines, also while a join waits for the coordinator.
type tries struct {
	mu          sync.Mutex
	since       time.Time // when now began
	now, before map[netip.Prefix]int
}

func source(a netip.Addr) netip.Prefix {
	bits := 64
	if a = a.Unmap().WithZone(""); a.Is4() {
		bits = 32
	}
	p, _ := a.Prefix(bits) // the zero prefix for no address
	return p
}

// turn begins another minute, also if this one has too many sources: those of the minute before are forgotten then.
func (t *tries) turn(at time.Time) {
	if passed := at.Sub(t.since); passed >= triesEvery || t.now == nil || len(t.now) >= mostSeen {
		if t.before = t.now; passed >= 2*triesEvery {
			t.before = nil
		}
		t.now, t.since = map[netip.Prefix]int{}, at
	}
}

// blocked reports whether a source has no try left.
func (t *tries) blocked(a netip.Addr, at time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.turn(at)
	p := source(a)
	return t.now[p]+t.before[p] >= mostTries
}

// wrong counts a wrong try.
func (t *tries) wrong(a netip.Addr, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.turn(at)
	t.now[source(a)]++
}
