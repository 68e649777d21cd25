package mqtt

import (
	"errors"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestBackoffDoublesUpToTheLongest(t *testing.T) {
	b := backoff{rand: rand.New(rand.NewPCG(1, 2)), longest: time.Minute}
	for _, start := range []time.Duration{firstDelay, herdDelay} {
		b.reset(start)
		for ceiling := start; ceiling < time.Hour; ceiling *= 2 {
			if d := b.next(); d < 0 || d > min(ceiling, time.Minute) {
				t.Errorf("waits %v under a ceiling of %v", d, ceiling)
			}
		}
	}
}

// All clients of a broker lose it at the same moment.
func TestHerdSpreadsOut(t *testing.T) {
	const clients = 500
	var buckets [16]int
	for i := range clients {
		b := backoff{rand: rand.New(rand.NewPCG(uint64(i), 0)), longest: time.Minute}
		b.reset(herdDelay)
		buckets[min(int(b.next()/time.Second), 15)]++
	}
	for second, n := range buckets {
		if n == 0 || n > clients/8 {
			t.Errorf("%d of %d clients come back in second %d", n, clients, second)
		}
	}
}

func TestReporterRepeatsOncePerMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		r := reporter{logger: slog.New(slog.NewTextHandler(&out, nil))}
		refused, timeout := errors.New("refused"), errors.New("timeout")
		lines := func() int { return strings.Count(out.String(), "\n") }
		for range 10 {
			r.failure(refused, time.Second)
		}
		if lines() != 1 {
			t.Errorf("%d lines for one failure", lines())
		}
		<-time.After(time.Minute)
		r.failure(refused, 3210*time.Millisecond)
		if want := "refused; next try in 3.2s (and 9 more like it)"; lines() != 2 || !strings.Contains(out.String(), want) {
			t.Errorf("logged %s, want %q in it", out.String(), want)
		}
		r.failure(timeout, time.Second)
		if lines() != 3 {
			t.Error("another failure was not logged")
		}
	})
}
