package mqtt_test

import (
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/eclipse/paho.mqtt.golang/packets"

	"github.com/fedmesh/fedmesh/internal/testkit/mqtttest"
	"github.com/fedmesh/fedmesh/mqtt"
)

// refusing starts a broker that refuses a SUBSCRIBE while refuse returns true.
func refusing(t *testing.T, refuse func(filter string) bool) *fakeBroker {
	t.Helper()
	return startFake(t, func(_ net.Conn, p packets.ControlPacket) packets.ControlPacket {
		s, ok := p.(*packets.SubscribePacket)
		if !ok {
			return usual(p)
		}
		ack := usual(p).(*packets.SubackPacket)
		for i, filter := range s.Topics {
			if refuse(filter) {
				ack.ReturnCodes[i] = mqtt.SubackFailure
			}
		}
		return ack
	})
}

func wantEvents(t *testing.T, c mqtt.Conn, wanted ...mqtt.Event) {
	t.Helper()
	for _, want := range wanted {
		if e := mqtttest.Event(t, c); e != want {
			t.Fatalf("got %#v, want %#v", e, want)
		}
	}
}

// TestRefusedSubscriptionIsAskedForAgain checks that a refused filter is requested again on the same link, because a
// cluster node that cannot reach the other nodes may refuse once or twice. A filter that was unsubscribed is not
// requested again.
func TestRefusedSubscriptionIsAskedForAgain(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 100)
	f := refusing(t, func(filter string) bool {
		asked <- filter
		return filter == "given up" || filter == "s/+" && len(asked) <= 2
	})
	s := dial(t, mqtt.Options{URL: f.url(), ClientID: "s"})
	refused := mqtt.SubscriptionRefused{Filter: "s/+", SubackCode: mqtt.SubackFailure}
	s.Subscribe(mqtt.AtLeastOnce, "s/+")
	wantEvents(t, s, refused, refused, mqtt.SubscriptionRefusalEnded{Filter: "s/+"})
	s.Subscribe(mqtt.AtLeastOnce, "given up")
	wantEvents(t, s, mqtt.SubscriptionRefused{Filter: "given up", SubackCode: mqtt.SubackFailure})
	s.Unsubscribe("given up")
	wantEvents(t, s, mqtt.SubscriptionRefusalEnded{Filter: "given up"})
	_ = s.Close()
	close(asked)
	if got, want := slices.Collect(chanSeq(asked)),
		[]string{"s/+", "s/+", "s/+", "given up"}; !slices.Equal(got, want) {
		t.Errorf("asked for %q, want %q", got, want)
	}
}

func chanSeq(c <-chan string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for s := range c {
			if !yield(s) {
				return
			}
		}
	}
}

// TestRefusingNodeIsLeft checks that after three consecutive refusals the session closes the link and tries the next
// node. The log line must name both possible causes.
func TestRefusingNodeIsLeft(t *testing.T) {
	t.Parallel()
	bad, granted := make(chan string, 1), make(chan string, 10)
	node := func(name string) *fakeBroker {
		return refusing(t, func(string) bool {
			select {
			case bad <- name: // the session tries this node first
				return true
			case first := <-bad:
				bad <- first
				if first != name {
					granted <- name
				}
				return first == name
			}
		})
	}
	a, b := node("a"), node("b")
	s := dial(t, mqtt.Options{URL: a.url(), MoreURLs: []string{b.url()}, ClientID: "s"})
	refused := mqtt.SubscriptionRefused{Filter: "s/+", SubackCode: mqtt.SubackFailure}
	s.Subscribe(mqtt.AtLeastOnce, "s/+")
	wantEvents(t, s, refused, refused, refused)
	d, ok := mqtttest.Event(t, s).(mqtt.LinkDown)
	if !ok {
		t.Fatalf("got %#v, want Down", d)
	}
	for _, want := range []string{"s/+ refused 3 times in a row", "access rules",
		"a node of a cluster that has lost its peers"} {
		if !strings.Contains(d.Err.Error(), want) {
			t.Errorf("the link ended with %q, want %q in it", d.Err, want)
		}
	}
	mqtttest.WantUp(t, s)
	if name := <-granted; name == <-bad {
		t.Errorf("%s grants what it refused", name)
	}
}

// TestRefusedFilters checks that the events report the end of a refusal when the broker grants the filter.
func TestRefusedFilters(t *testing.T) {
	t.Parallel()
	var r mqtt.RefusedFilters
	for i, tt := range []struct {
		e       mqtt.Event
		changed bool
		list    []string
	}{
		{mqtt.LinkUp{}, false, nil},
		{mqtt.SubscriptionRefusalEnded{Filter: "never refused"}, false, nil},
		{mqtt.SubscriptionRefused{Filter: "s/+"}, true, []string{"s/+"}},
		{mqtt.SubscriptionRefused{Filter: "s/+"}, false, []string{"s/+"}},
		{mqtt.SubscriptionRefused{Filter: "p/+"}, true, []string{"p/+", "s/+"}},
		{mqtt.SubscriptionRefusalEnded{Filter: "s/+"}, true, []string{"p/+"}},
		{mqtt.LinkDown{}, true, nil},
		{mqtt.LinkDown{}, false, nil},
	} {
		if changed := r.Step(tt.e); changed != tt.changed || !slices.Equal(r.List(), tt.list) {
			t.Errorf("event %d: %v, %q; want %v, %q", i, changed, r.List(), tt.changed, tt.list)
		}
	}
}

func TestRefusedWait(t *testing.T) {
	t.Parallel()
	for n, most := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 6: 32 * time.Second, 7: time.Minute,
		1000: time.Minute} {
		for seed := range uint64(100) {
			if d := mqtt.RefusedFilterRetryDelay(n, newRand(seed)); d < most/2 || d > most {
				t.Errorf("after %d refusals waits %v, want %v to %v", n, d, most/2, most)
			}
		}
	}
}
