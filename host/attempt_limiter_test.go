package host

import (
	"net/netip"
	"testing"
	"time"
)

// TestAttemptsAreBounded checks that the memory is bounded for any number of sources, and that the most recent source
// remains blocked.
func TestAttemptsAreBounded(t *testing.T) {
	var l AttemptLimiter
	at, a := time.Unix(1, 0), netip.MustParseAddr("192.0.2.7")
	for range 3 * maxSourceCount {
		a = a.Next()
		for range MaxAttempts {
			l.CountFailure(a, at)
		}
	}
	if n := len(l.currentBySource) + len(l.previousBySource); n > 2*maxSourceCount {
		t.Errorf("%d sources are stored", n)
	}
	if !l.IsSourceBlocked(a, at) {
		t.Error("the latest source is not blocked")
	}
	if l.IsSourceBlocked(a, at.Add(2*time.Minute)) {
		t.Error("the source is still blocked after two minutes")
	}
}

// TestSourcePrefix checks that all addresses of an IPv6 /64 network belong to the same source, and that an IPv4 address
// mapped to IPv6 belongs to the same source as the IPv4 address.
func TestSourcePrefix(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		same bool
	}{
		{"2001:db8::1", "2001:db8::2", true}, {"2001:db8::1", "2001:db8:0:1::1", false},
		{"::ffff:192.0.2.7", "192.0.2.7", true}, {"192.0.2.8", "192.0.2.7", false},
	} {
		if got := SourcePrefix(netip.MustParseAddr(tt.a)) == SourcePrefix(netip.MustParseAddr(tt.b)); got != tt.same {
			t.Errorf("%s and %s are the same source: %v, want %v", tt.a, tt.b, got, tt.same)
		}
	}
}
