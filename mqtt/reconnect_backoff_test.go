package mqtt

import (
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func newBackoff(seed uint64, urls int) *reconnectBackoff {
	return &reconnectBackoff{rand: rand.New(rand.NewPCG(seed, 2)), maxDelay: time.Minute, brokerURLCount: urls}
}

func TestWaits(t *testing.T) {
	for _, urls := range []int{1, 3} {
		b, n := newBackoff(1, urls), time.Duration(urls)
		within := func(d, least, most time.Duration) {
			t.Helper()
			if d < least || d > most {
				t.Errorf("%d URLs: waits %v, want %v to %v", urls, d, least, most)
			}
		}
		for range 2 { // repeat, because the loss of a link resets the backoff
			within(b.delayAfterLinkLoss(), 0, maxDelayAfterLoss/n)
			for range urls - 1 { // the other URLs have not been tried yet
				within(b.delayAfterFailedAttempt(20*time.Second), 0, maxFirstRetryDelay)
			}
			for range 100 {
				within(b.delayAfterFailedAttempt(0), maxFirstRetryDelay/n/2, maxFirstRetryDelay/n)
				within(b.delayAfterFailedAttempt(20*time.Second), 10*time.Second/n, 20*time.Second/n)
				within(b.delayAfterFailedAttempt(time.Hour), 30*time.Second/n, time.Minute/n)
			}
		}
	}
}

// TestHerd simulates all clients of a broker that lose their connections at the same moment. The reconnections must be
// spread over time. After the broker has returned, no client may wait longer than the downtime, or than the rest of the
// spread of 16 s if that is longer, and never longer than a minute.
func TestHerd(t *testing.T) {
	const clients, evenly = 10_000, 10_000 / 16
	for _, away := range []time.Duration{0, 500 * time.Millisecond, 3500 * time.Millisecond, 10 * time.Second,
		30 * time.Second, 5 * time.Minute} {
		t.Run(away.String(), func(t *testing.T) {
			t.Parallel()
			var seconds [62]int
			var latest time.Duration
			for i := range clients {
				b := newBackoff(uint64(i), 1)
				at := b.delayAfterLinkLoss()
				for at < away { // each attempt is refused immediately
					at += b.delayAfterFailedAttempt(at)
				}
				latest = max(latest, at-away)
				seconds[(at-away)/time.Second]++
			}
			most := slices.Max(seconds[:])
			t.Logf("the last of %d clients is back %v after the broker, at most %d in one second", clients,
				latest.Round(100*time.Millisecond), most)
			if bound := min(max(maxDelayAfterLoss-away, away), time.Minute); latest > bound {
				t.Errorf("the last is back %v after the broker, want at most %v", latest, bound)
			}
			if most > evenly*5/2 {
				t.Errorf("%d come back in one second, want at most %d: the rate of an even spread, 2.5 times", most,
					evenly*5/2)
			}
		})
	}
}

// TestHerdOfACluster checks that when all clients lose a cluster at the same moment, each node receives no more
// connection attempts per second than a single broker would.
func TestHerdOfACluster(t *testing.T) {
	const clients, urls = 9000, 3
	var seconds [urls][16]int
	for i := range clients {
		seconds[i%urls][newBackoff(uint64(i), urls).delayAfterLinkLoss()/time.Second]++
	}
	for node, n := range seconds {
		if most := slices.Max(n[:]); most > clients/16*9/8 {
			t.Errorf("%d come to node %d in one second, more than to a single broker", most, node)
		}
	}
}

// TestRefusedLimit checks that a session changes nodes at increasing intervals if every node refuses its subscription,
// because the access rules are then the likely cause.
func TestRefusedLimit(t *testing.T) {
	for moves, want := range []int{3, 3, 6, 6, 12, 12, 24, 24, 48, 48, 48, 48} {
		if got := maxRefusalsPerLink(moves, 2); got != want {
			t.Errorf("after %d links: %d refusals end one, want %d", moves, got, want)
		}
	}
}

func TestReporterRepeatsOncePerMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		var r connectFailureReporter
		logger := slog.New(slog.NewTextHandler(&out, nil))
		refused, timeout := errors.New("refused"), errors.New("timeout")
		lines := func() int { return strings.Count(out.String(), "\n") }
		for range 10 {
			r.report(logger, refused, time.Second, "")
		}
		if lines() != 1 {
			t.Errorf("%d lines for one failure", lines())
		}
		<-time.After(time.Minute)
		r.report(logger, refused, 3210*time.Millisecond, " at tcp://b:1")
		if want := "refused; retry in 3.2s at tcp://b:1 (9 repeats not logged)"; lines() != 2 ||
			!strings.Contains(out.String(), want) {
			t.Errorf("logged %s, want %q in it", out.String(), want)
		}
		r.report(logger, timeout, time.Second, "")
		if lines() != 3 {
			t.Error("another failure was not logged")
		}
	})
}
