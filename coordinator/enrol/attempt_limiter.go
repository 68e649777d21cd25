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

// attemptLimiter counts wrong tries by source: an address of IPv4, or a network /64 of IPv6. It may be used from
// several goroutines, also while a join waits for the coordinator.
type attemptLimiter struct {
	mu                                sync.Mutex
	windowStart                       time.Time // when now began
	currentBySource, previousBySource map[netip.Prefix]int
}

func sourcePrefix(a netip.Addr) netip.Prefix {
	bits := 64
	if a = a.Unmap().WithZone(""); a.Is4() {
		bits = 32
	}
	p, _ := a.Prefix(bits) // the zero prefix for no address
	return p
}

// rotateWindow begins another minute, also if this one has too many sources: those of the minute before are forgotten
// then.
func (t *attemptLimiter) rotateWindow(at time.Time) {
	if passed := at.Sub(t.windowStart); passed >= triesEvery || t.currentBySource == nil ||
		len(t.currentBySource) >= mostSeen {
		if t.previousBySource = t.currentBySource; passed >= 2*triesEvery {
			t.previousBySource = nil
		}
		t.currentBySource, t.windowStart = map[netip.Prefix]int{}, at
	}
}

// isSourceBlocked reports whether a source has no try left.
func (t *attemptLimiter) isSourceBlocked(a netip.Addr, at time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rotateWindow(at)
	p := sourcePrefix(a)
	return t.currentBySource[p]+t.previousBySource[p] >= mostTries
}

// countFailure counts a wrong try.
func (t *attemptLimiter) countFailure(a netip.Addr, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rotateWindow(at)
	t.currentBySource[sourcePrefix(a)]++
}
