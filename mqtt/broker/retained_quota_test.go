package broker_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/eclipse/paho.mqtt.golang/packets"

	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
	"github.com/fedmesh/fedmesh/internal/testkit/mqtttest"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/mqtt/broker"
)

// withQuota starts a broker that gives each user a quota for one retained message of at most 3000 bytes on a topic such
// as s/x.
func withQuota(t *testing.T, log *slog.Logger) *broker.Server {
	t.Helper()
	return start(t, broker.Options{
		Authenticate: password, Logger: log,
		Quota: func(user string) int {
			if user == "observer" {
				return 1 << 30
			}
			return 4000
		},
	})
}

// kept returns the topics and lengths of the retained messages that match a filter.
func kept(t *testing.T, c *mqtt.Session, filter string) string {
	t.Helper()
	c.Subscribe(mqtt.AtMostOnce, filter, "end")
	defer c.Unsubscribe(filter, "end")
	if err := c.Publish(mqtt.Message{Topic: "end"}); err != nil {
		t.Fatal(err)
	}
	var all []string
	for {
		m := mqtttest.Received(t, c)
		if m.Topic == "end" {
			slices.Sort(all)
			return strings.Join(all, " ")
		}
		if m.Retained {
			all = append(all, fmt.Sprint(m.Topic, ":", len(m.Payload)))
		}
	}
}

// TestQuota checks that a device cannot retain more than its quota, and that other devices are not affected. Replacing
// or deleting a message frees its space.
func TestQuota(t *testing.T) {
	lines := make(chan string, 10)
	s := withQuota(t, slog.New(slog.NewTextHandler(lineWriter(lines), nil)))
	observer := mqtttest.Dial(t, asUser(s)("observer"))
	rogue, honest := mqtttest.Dial(t, asUser(s)("rogue")), mqtttest.Dial(t, asUser(s)("honest"))
	say := func(c *mqtt.Session, topic string, n int) {
		t.Helper()
		if err := c.Publish(mqtt.Message{Topic: topic, Payload: bytes.Repeat([]byte{1}, n), QoS: mqtt.AtLeastOnce,
			Retained: true}); err != nil {
			t.Fatal(err)
		}
	}
	rogue.Subscribe(mqtt.AtMostOnce, "done/rogue")
	honest.Subscribe(mqtt.AtMostOnce, "done/honest")
	want := func(now string) {
		t.Helper()
		// Check that the earlier messages have been processed.
		for name, c := range map[string]*mqtt.Session{"rogue": rogue, "honest": honest} {
			if err := c.Publish(mqtt.Message{Topic: "done/" + name}); err != nil {
				t.Fatal(err)
			}
			mqtttest.Received(t, c)
		}
		if got := kept(t, observer, "s/#"); got != now {
			t.Errorf("retained are %q, want %q", got, now)
		}
	}
	say(rogue, "s/a", 1000) // the message needs 2027 bytes of the quota
	for i := range 100 {
		say(rogue, fmt.Sprint("s/b", i), 1000)
	}
	want("s/a:1000")
	say(rogue, "s/a", 2900) // the message replaces the retained message of the same topic
	say(honest, "s/h", 2900)
	want("s/a:2900 s/h:2900")
	say(rogue, "s/a", 3000)
	say(rogue, "s"+strings.Repeat("/", 20), 1) // the message has few bytes but needs many index nodes
	want("s/a:2900 s/h:2900")
	say(rogue, "s/a", 0)
	say(rogue, "s/b", 2900)
	want("s/b:2900 s/h:2900")
	say(honest, "s/b", 1) // together with s/h, the message exceeds the quota of honest
	want("s/b:2900 s/h:2900")
	say(honest, "s/h", 0)
	say(honest, "s/b", 1) // the retained message now belongs to honest, so rogue has space again
	want("s/b:1")
	say(rogue, "s/c", 2900)
	want("s/b:1 s/c:2900")
	if denied := s.Stats().Denied; denied != 100+2+1 {
		t.Errorf("%d messages denied", denied)
	}
	if line := logged(t, lines); !strings.Contains(line, "sender exceeds its quota") ||
		!strings.Contains(line, "client=rogue") || len(lines) != 1 {
		t.Errorf("logged %q, and %d more, want one of the honest", line, len(lines))
	}
}

// TestQuotaOfWills checks that a will over the quota is published but not retained.
func TestQuotaOfWills(t *testing.T) {
	s := withQuota(t, nil)
	observer := mqtttest.Dial(t, asUser(s)("observer"))
	observer.Subscribe(mqtt.AtMostOnce, "w")
	if got := kept(t, observer, "nothing"); got != "" {
		t.Fatal(got)
	}
	for _, n := range []int{100, 3500} {
		c := rawDial(t, s)
		connect := brokers.ConnectPacket(asUser(s)("rogue"))
		connect.WillFlag, connect.WillRetain, connect.WillTopic, connect.WillMessage = true, true, "w", make([]byte, n)
		c.Send(connect)
		brokers.Receive[*packets.ConnackPacket](c)
		_ = c.Close()
		if m := mqtttest.Received(t, observer); len(m.Payload) != n {
			t.Errorf("the will has %d bytes, want %d", len(m.Payload), n)
		}
	}
	late := mqtttest.Dial(t, mqtt.Options{URL: s.URL(), ClientID: "late", Username: "late",
		Password: "password of late"})
	if got := kept(t, late, "w"); got != "w:100" {
		t.Errorf("retained is %q", got)
	}
}
