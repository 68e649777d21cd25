package enrol

import (
	"net/netip"
	"sync"
	"time"
)

const (
	triesEvery = time.Minute
	mostTries  = 5
	mostSeen   = 1 << 15 // maximum number of sources that are counted per time window
)

// attemptLimiter counts failed attempts per source: an IPv4 address or an IPv6 /64 network. It is safe for concurrent
// use.
type attemptLimiter struct {
	mu                                sync.Mutex
	windowStart                       time.Time // start of the current time window
	currentBySource, previousBySource map[netip.Prefix]int
}

func sourcePrefix(a netip.Addr) netip.Prefix {
	bits := 64
	if a = a.Unmap().WithZone(""); a.Is4() {
		bits = 32
	}
	p, _ := a.Prefix(bits) // an invalid address yields the zero prefix
	return p
}

// rotateWindow starts the next time window after triesEvery, or earlier if the current window has mostSeen sources. It
// keeps the counts of the window that has ended and drops older counts.
func (t *attemptLimiter) rotateWindow(at time.Time) {
	if passed := at.Sub(t.windowStart); passed >= triesEvery || t.currentBySource == nil ||
		len(t.currentBySource) >= mostSeen {
		if t.previousBySource = t.currentBySource; passed >= 2*triesEvery {
			t.previousBySource = nil
		}
		t.currentBySource, t.windowStart = map[netip.Prefix]int{}, at
	}
}

// isSourceBlocked reports whether a source has used all its attempts.
func (t *attemptLimiter) isSourceBlocked(a netip.Addr, at time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rotateWindow(at)
	p := sourcePrefix(a)
	return t.currentBySource[p]+t.previousBySource[p] >= mostTries
}

func (t *attemptLimiter) countFailure(a netip.Addr, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rotateWindow(at)
	t.currentBySource[sourcePrefix(a)]++
}
