package host

import (
	"net/netip"
	"sync"
	"time"
)

const (
	// MaxAttempts is the number of failed attempts per source and minute after which AttemptLimiter blocks the source.
	MaxAttempts    = 5
	attemptWindow  = time.Minute
	maxSourceCount = 1 << 15 // maximum number of sources per time window
)

// AttemptLimiter limits failed attempts to guess a secret. It counts the attempts per source, which is an IPv4 address
// or an IPv6 /64 network. The zero value is ready to use. It is safe for concurrent use.
type AttemptLimiter struct {
	mu                                sync.Mutex
	windowStart                       time.Time // time at which the current window started
	currentBySource, previousBySource map[netip.Prefix]int
}

// SourcePrefix returns the source to which an address belongs: an IPv4 address or an IPv6 /64 network.
func SourcePrefix(a netip.Addr) netip.Prefix {
	bits := 64
	if a = a.Unmap().WithZone(""); a.Is4() {
		bits = 32
	}
	p, _ := a.Prefix(bits) // For an invalid address, the result is the zero prefix.
	return p
}

// rotateWindow starts the next time window after attemptWindow, or earlier if the current window has maxSourceCount
// sources. It keeps the counts of the window that has just ended and drops older counts.
func (l *AttemptLimiter) rotateWindow(at time.Time) {
	if passed := at.Sub(l.windowStart); passed >= attemptWindow || l.currentBySource == nil ||
		len(l.currentBySource) >= maxSourceCount {
		if l.previousBySource = l.currentBySource; passed >= 2*attemptWindow {
			l.previousBySource = nil
		}
		l.currentBySource, l.windowStart = map[netip.Prefix]int{}, at
	}
}

// IsSourceBlocked reports whether the source of an address has reached the maximum number of failed attempts.
func (l *AttemptLimiter) IsSourceBlocked(a netip.Addr, at time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rotateWindow(at)
	p := SourcePrefix(a)
	return l.currentBySource[p]+l.previousBySource[p] >= MaxAttempts
}

// CountFailure counts a failed attempt from an address.
func (l *AttemptLimiter) CountFailure(a netip.Addr, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rotateWindow(at)
	l.currentBySource[SourcePrefix(a)]++
}

// ForgetFailures resets all counts. Tests call it between cases.
func (l *AttemptLimiter) ForgetFailures() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.currentBySource, l.previousBySource = nil, nil
}
