package mqtt_test

import (
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit/mqtttest"
	"github.com/fedmesh/fedmesh/mqtt"
)

// countingLine forwards connections to the host of the URL target and counts the bytes in both directions. It returns
// the URL of the forwarder.
func countingLine(t *testing.T, target string) (through string, passed *atomic.Int64) {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	passed = new(atomic.Int64)
	far := u.Host
	u.Host = listener.Addr().String()
	var running sync.WaitGroup
	running.Go(func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			onward, err := net.Dial("tcp", far)
			if err != nil {
				_ = near.Close()
				continue
			}
			running.Go(func() { forward(onward, counted{near, passed}) })
			running.Go(func() { forward(near, counted{onward, passed}) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		running.Wait()
	})
	return u.String(), passed
}

type counted struct {
	net.Conn
	n *atomic.Int64
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// TestMeter compares the meter with the bytes that pass the sockets, plus at least 40 bytes of TCP/IP headers for each
// segment of 1448 bytes. The meter may overestimate by a tenth, plus the cost of opening connections and of small
// packets.
func TestMeter(t *testing.T) {
	for _, scheme := range []string{"tcp", "tls", "ws", "wss"} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			direct, config := front(t, scheme)
			through, passed := countingLine(t, direct)
			var meter mqtt.TrafficMeter
			s := dial(t, mqtt.Options{URL: through, ClientID: "s", TLS: config, Meter: &meter})
			s.Subscribe(mqtt.AtLeastOnce, "x")
			opened := meter.TotalBytes()
			if real := uint64(passed.Load()); opened < real || opened > real+12_000 {
				t.Errorf("after opening %d are counted, %d passed", opened, real)
			}
			const large, small = 30, 100
			for range large {
				mqtttest.Publish(t, s, mqtt.Message{Topic: "x", Payload: make([]byte, 60<<10)})
				mqtttest.Received(t, s)
			}
			mqtttest.SyncWithBroker(t, s)
			got, real := meter.TotalBytes(), uint64(passed.Load())
			if least := real + real/1448*40; got < least || got > real*11/10+12_000 {
				t.Errorf("%d are counted; %d passed, and %d with the least headers", got, real, least)
			}
			for range small {
				mqtttest.Publish(t, s, mqtt.Message{Topic: "x", Payload: make([]byte, 10), QoS: mqtt.AtLeastOnce})
				mqtttest.Received(t, s)
			}
			mqtttest.SyncWithBroker(t, s)
			got, real = meter.TotalBytes()-got, uint64(passed.Load())-real
			// Each of four messages has a header and an acknowledgement.
			if least := real + small*4*80; got < least || got > real+small*4*140+1000 {
				t.Errorf("of small ones %d are counted; %d passed, and %d with the least headers", got, real, least)
			}
		})
	}
}

// TestMeterCountsAttempts checks that failed attempts are counted.
func TestMeterCountsAttempts(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = listener.Close()
	var meter mqtt.TrafficMeter
	s := dialing(t, mqtt.Options{URL: "tcp://" + listener.Addr().String(), ClientID: "s", Meter: &meter})
	eventually(t, "several attempts are counted", func() bool { return meter.TotalBytes() >= 1800 })
	if meter.TotalBytes()%600 != 0 {
		t.Errorf("%d bytes for attempts that reach nobody", meter.TotalBytes())
	}
	_ = s.Close()
}
