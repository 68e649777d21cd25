package faults_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/internal/testkit/memory"
	"github.com/fedmesh/fedmesh/lab/faults"
	"github.com/fedmesh/fedmesh/mqtt"
)

const sent = 400

// heard sends 400 messages over a connection with faults. It returns the messages in order of arrival, and the time
// until the last message arrived.
func heard(t *testing.T, o faults.Options, after func(*faults.Conn)) (all []string, took time.Duration) {
	t.Helper()
	b := memory.New(memory.Options{})
	o.Rand = rand.New(rand.NewPCG(1, 2))
	c := faults.Wrap(b.Connect("receiver", nil), o)
	c.Subscribe(mqtt.AtMostOnce, "x")
	from := b.Connect("sender", nil)
	began := time.Now()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range c.Events() {
			if r, ok := e.(mqtt.MessageReceived); ok {
				all = append(all, string(r.Payload))
				took = time.Since(began)
			}
		}
	}()
	for i := range sent {
		if i == sent/2 && after != nil {
			synctest.Wait()
			after(c)
		}
		if err := from.Publish(mqtt.Message{Topic: "x", Payload: fmt.Appendf(nil, "%03d", i)}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
	}
	<-time.After(time.Minute)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	_ = from.Close()
	<-done
	return all, took
}

// TestFaults checks the effect of each kind of fault separately.
func TestFaults(t *testing.T) {
	for _, tt := range []struct {
		name        string
		o           faults.Options
		after       func(*faults.Conn)
		least, most int // minimum and maximum number of messages that arrive
		doubled     bool
		sorted      bool
		late        time.Duration // minimum time until the last message arrives
	}{
		{"none", faults.Options{}, nil, sent, sent, false, true, 0},
		{"loss", faults.Options{Loss: 0.25}, nil, 270, 330, false, true, 0},
		{"duplicates", faults.Options{Duplicates: 0.25}, nil, 470, 530, true, true, 0},
		{"delay", faults.Options{Delay: time.Second}, nil, sent, sent, false, false, 900 * time.Millisecond},
		{"spared", faults.Options{Loss: 1, IsExemptTopic: func(topic string) bool { return topic == "x" }}, nil, sent,
			sent,
			false, true, 0},
		{"cut", faults.Options{}, (*faults.Conn).Cut, sent / 2, sent / 2, false, true, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all, took := heard(t, tt.o, tt.after)
				if n := len(all); n < tt.least || n > tt.most {
					t.Errorf("%d of %d messages came, want %d to %d", n, sent, tt.least, tt.most)
				}
				if slices.IsSorted(all) != tt.sorted {
					t.Errorf("in the order of sending: %v", !tt.sorted)
				}
				slices.Sort(all)
				if doubled := len(slices.Compact(all)) < len(all); doubled != tt.doubled {
					t.Errorf("doubled: %v", doubled)
				}
				if took < tt.late || took > time.Second {
					t.Errorf("the last came after %v", took)
				}
			})
		})
	}
}

// TestCutSendsNothing checks that a connection discards published messages after Cut.
func TestCutSendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.Options{})
		hears := b.Connect("hears", nil)
		hears.Subscribe(mqtt.AtMostOnce, "x")
		c := faults.Wrap(b.Connect("cut", nil), faults.Options{})
		for _, text := range []string{"one", "two"} {
			if err := c.Publish(mqtt.Message{Topic: "x", Payload: []byte(text)}); err != nil {
				t.Error(err)
			}
			c.Cut()
		}
		synctest.Wait()
		_ = c.Close()
		got := 0
		for range 2 {
			select {
			case e := <-hears.Events():
				if r, ok := e.(mqtt.MessageReceived); ok {
					got++
					if string(r.Payload) != "one" {
						t.Errorf("%q came", r.Payload)
					}
				}
			case <-time.After(time.Second):
			}
		}
		_ = hears.Close()
		if got != 1 {
			t.Errorf("%d messages came", got)
		}
	})
}
