package e2e

import (
	"slices"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/mqtt"
)

// retained returns the broker's retained messages by topic.
func retained(t *testing.T, url string) map[string][]byte {
	t.Helper()
	conn, err := mqtt.Dial(t.Context(), mqtt.Options{URL: url, ClientID: "observer"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.Subscribe(mqtt.AtLeastOnce, "#")
	kept := map[string][]byte{}
	deadline := time.After(testkit.Patience)
	for {
		select {
		case e := <-conn.Events():
			switch e := e.(type) {
			case mqtt.LinkUp: // all retained messages have arrived before this event
				if err := conn.Publish(mqtt.Message{Topic: "end", QoS: mqtt.AtLeastOnce,
					Payload: []byte("of what is retained")}); err != nil {
					t.Fatal(err)
				}
			case mqtt.MessageReceived:
				if e.Topic == "end" {
					return kept
				}
				if e.Retained {
					kept[e.Topic] = slices.Clone(e.Payload)
				}
			}
		case <-deadline:
			t.Fatal("the broker does not answer")
		}
	}
}
