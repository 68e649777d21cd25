package broker_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/mqtt/broker"
)

// BenchmarkStalledSubscribers has ten subscribers that do not read, and
// reports how long each of 20 messages of 1 MiB takes to one that does. Mochi
// as it comes needs 66 s.
func BenchmarkStalledSubscribers(b *testing.B) {
	const stalled, messages, size, packet = 10, 20, 1 << 20, 2 << 20
	var took []time.Duration
	for b.Loop() {
		s := start(b, broker.Options{MaxPacket: packet})
		for i := range stalled {
			c := rawDial(b, s)
			c.connect(fmt.Sprint("stalled ", i))
			c.subscribe(1, 1, "x")
		}
		healthy := dial(b, mqtt.Options{URL: s.URL(), ClientID: "healthy", MaxPacket: packet})
		healthy.Subscribe(mqtt.AtLeastOnce, "x", "ready")
		if err := healthy.Publish(mqtt.Message{Topic: "ready"}); err != nil {
			b.Fatal(err)
		}
		received(b, healthy)
		publisher := dial(b, mqtt.Options{URL: s.URL(), ClientID: "publisher", MaxPacket: packet})
		for range messages {
			begun := time.Now()
			if err := publisher.Publish(mqtt.Message{Topic: "x", Payload: make([]byte, size), QoS: mqtt.AtLeastOnce}); err != nil {
				b.Fatal(err)
			}
			received(b, healthy)
			took = append(took, time.Since(begun))
		}
		_, _, _ = publisher.Close(), healthy.Close(), s.Close()
	}
	slices.Sort(took)
	milliseconds := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	b.ReportMetric(milliseconds(took[len(took)/2]), "median-ms")
	b.ReportMetric(milliseconds(took[len(took)-1]), "max-ms")
}
