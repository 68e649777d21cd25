package memory_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/internal/testkit/memory"
	"github.com/fedmesh/fedmesh/mqtt"
)

// TestNextLinkDoesNotWaitForWhatWasLost checks that a message that was lost with its connection does not delay messages
// on the next connection.
func TestNextLinkDoesNotWaitForWhatWasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		delay := time.Hour
		b := memory.New(memory.Options{Delay: func(string) time.Duration { return delay }})
		c, from := b.Connect("c", nil), b.Connect("from", nil)
		defer func() { _, _ = c.Close(), from.Close() }()
		c.Subscribe(mqtt.AtMostOnce, "x")
		send := func(text string) {
			t.Helper()
			if err := from.Publish(mqtt.Message{Topic: "x", Payload: []byte(text)}); err != nil {
				t.Fatal(err)
			}
		}
		send("lost")
		b.Disconnect("c")
		b.Reconnect("c")
		begun := time.Now()
		delay = time.Minute
		send("late")
		delay = 0
		send("behind it")
		for _, want := range []string{"late", "behind it"} {
			m, ok := mqtt.MessageReceived{}, false
			for !ok {
				m, ok = (<-c.Events()).(mqtt.MessageReceived)
			}
			if took := time.Since(begun); string(m.Payload) != want || took != time.Minute {
				t.Errorf("%q came after %v, want %q after a minute", m.Payload, took, want)
			}
		}
		<-time.After(2 * time.Hour)
		synctest.Wait()
		select {
		case e := <-c.Events():
			t.Errorf("%#v came", e)
		default:
		}
	})
}
