package mqtt_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/internal/testkit/mqtttest"
	"github.com/fedmesh/fedmesh/mqtt"
)

// TestR8SessionsComeBackSpreadOut checks that after a restart of the broker its sessions reconnect at times that are
// spread over the longest delay (R8). TestHerd simulates 10,000 sessions with the usual longest delay of 16 s.
func TestR8SessionsComeBackSpreadOut(t *testing.T) {
	t.Parallel()
	const clients, longest = 50, 2 * time.Second
	b := newEmbedded(t, 128<<10)
	b.start(t)
	t.Cleanup(func() { b.stop() })
	var sessions []*mqtt.Session
	var logs []lineWriter
	for i := range clients {
		logger, lines := logged()
		sessions = append(sessions, dial(t, mqtt.Options{
			URL: b.url(), ClientID: fmt.Sprint(i), MaxReconnectDelay: longest,
			Rand: rand.New(rand.NewPCG(uint64(i), 8)), Logger: logger,
		}))
		logs = append(logs, lines)
	}
	stopped := time.Now()
	b.stop()
	for _, s := range sessions {
		mqtttest.WantDown(t, s)
	}
	b.start(t)
	back := make([]chan time.Duration, clients)
	for i, s := range sessions {
		back[i] = make(chan time.Duration, 1)
		go func() {
			for range s.Events() { // LinkUp is the only event before Close
				back[i] <- time.Since(stopped)
			}
		}()
	}
	var delays []time.Duration
	for i, lines := range logs {
		line(t, lines) // read the log line "connected"
		delay := nextTry(t, line(t, lines))
		delays = append(delays, delay)
		select {
		case after := <-back[i]:
			if after < delay {
				t.Errorf("session %d is back after %v, before its delay of %v", i, after, delay)
			}
		case <-time.After(patience):
			t.Fatalf("session %d is not back", i)
		}
	}
	slices.Sort(delays)
	if all := delays[clients-1] - delays[0]; all < longest/2 {
		t.Errorf("all come back within %v", all)
	}
	for i := range clients / 2 {
		if half := delays[i+clients/2] - delays[i]; half < longest/10 {
			t.Errorf("half of them come back within %v", half)
		}
	}
}

// nextTry returns the delay in a log line, minus the maximum rounding error.
func nextTry(t *testing.T, line string) time.Duration {
	t.Helper()
	_, text, _ := strings.Cut(strings.TrimSpace(line), "retry in ")
	d, err := time.ParseDuration(strings.TrimSuffix(text, `"`))
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return d - 50*time.Millisecond
}
