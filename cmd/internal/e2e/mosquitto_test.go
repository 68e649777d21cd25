package e2e

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
	"github.com/fedmesh/fedmesh/mqtt"
)

// mosquitto starts a broker until the test ends, and returns its URL. Lines are
// added to its configuration.
func mosquitto(t *testing.T, lines ...string) string {
	t.Helper()
	m := brokers.NewMosquitto(t, []byte(brokers.Open+strings.Join(lines, "\n")))
	m.Start(t)
	return "tcp://" + m.Address
}

// retained returns what the broker keeps, by topic.
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
			case mqtt.Up: // what is retained comes before this
				if err := conn.Publish(mqtt.Message{Topic: "end", QoS: mqtt.AtLeastOnce,
					Payload: []byte("of what is retained")}); err != nil {
					t.Fatal(err)
				}
			case mqtt.Received:
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
