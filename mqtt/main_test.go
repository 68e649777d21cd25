package mqtt_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fedmesh/fedmesh/internal/testkit/mqtttest"
	"github.com/fedmesh/fedmesh/mqtt"
)

// patience is the maximum time that a test waits for an event; tests normally take much less.
const patience = time.Minute

// soon is the maximum delay between connection attempts in tests.
const soon = 20 * time.Millisecond

func TestMain(m *testing.M) {
	code := m.Run()
	// After a link has ended, paho keeps a pending write until its write timeout.
	leak := goleak.Find()
	for until := time.Now().Add(time.Minute); leak != nil && time.Now().Before(until); {
		leak = goleak.Find() // goleak.Find itself retries for half a second
	}
	if leak != nil && code == 0 {
		fmt.Fprintln(os.Stderr, leak)
		code = 1
	}
	os.Exit(code)
}

// dial returns a connected session.
func dial(t *testing.T, o mqtt.Options) *mqtt.Session {
	t.Helper()
	s := dialing(t, o)
	mqtttest.WantUp(t, s)
	return s
}

// dialing returns a session that may not be connected yet.
func dialing(t *testing.T, o mqtt.Options) *mqtt.Session {
	t.Helper()
	if o.MaxReconnectDelay == 0 {
		o.MaxReconnectDelay = soon
	}
	s, err := mqtt.Dial(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// eventually waits for a condition that no event reports.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	late := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("not in time: %s", what)
		}
	}
}
