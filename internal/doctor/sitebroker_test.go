package doctor

import (
	"slices"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/mqtt/broker"
)

// TestSite checks that the doctor reports problems of the broker for sensor readings, and whether readings arrive.
func TestSite(t *testing.T) {
	t.Parallel()
	b, err := broker.Start(broker.Options{Authenticate: func(_, _, password string) bool { return password == "good" },
		Allow: func(_, topic string, _ bool) bool { return !strings.HasPrefix(topic, "secret/") }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	site := func(url, password string, topics ...string) *BrokerTarget {
		return &BrokerTarget{Options: mqtt.Options{URL: url, ClientID: "check", Username: "check", Password: password},
			SubscribedFilters: topics}
	}
	conn, err := mqtt.Dial(t.Context(), mqtt.Options{URL: b.URL(), ClientID: "sensor", Username: "sensor",
		Password: "good"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for e := range conn.Events() {
		if _, up := e.(mqtt.LinkUp); up {
			break
		}
	}
	if err := conn.Publish(mqtt.Message{Topic: "site/air", Payload: []byte("1"), QoS: mqtt.AtLeastOnce,
		Retained: true}); err != nil {
		t.Fatal(err)
	}
	home := openBroker(t)
	for _, tt := range []struct {
		name        string
		site        *BrokerTarget
		found, says string
	}{
		{"readings come", site(b.URL(), "good", "site/+"), "", "sensor messages received within 3s: 1"},
		{"nothing comes", site(b.URL(), "good", "site/noise"), "readings warn", `on the topics ["site/noise"]`},
		{"a topic is refused", site(b.URL(), "good", "secret/air", "site/+"), "access bad",
			"the broker rejected the subscription to secret/air"},
		{"a wrong password", site(b.URL(), "bad", "site/+"), "connection bad", "check the user name, password"},
		{"nobody there", site("tcp://"+brokers.FreeAddress(t), "", "site/+"), "network bad", "check that the " +
			"broker is running"},
		{"an unknown host", site("tcp://site.invalid:1883", "", "site/+"), "network bad",
			"check the broker's host name"},
		{"no TLS there", site(strings.Replace(b.URL(), "tcp:", "tls:", 1), "good", "site/+"), "connection bad",
			"cannot reach the broker at tls://"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := newTarget(t, home)
			p.Broker.Options.ClientID += strings.ReplaceAll(tt.name, " ", "-")
			p.Broker.SubscribedFilters, p.Broker.NeedsRetainedMessages, p.Broker.WantedQueueLength = nil, false, 0
			p.Broker.SelfTestTopic += strings.ReplaceAll(tt.name, " ", "-")
			p.SiteBroker = tt.site
			// Different client ids prevent that the tests disconnect each other.
			p.SiteBroker.Options.ClientID += strings.ReplaceAll(tt.name, " ", "-")
			p.SiteBroker.Options.Username = p.SiteBroker.Options.ClientID
			found, text := examine(t, p)
			if strings.Join(found, ", ") != tt.found || !strings.Contains(text, tt.says) ||
				!strings.Contains(text, "readings.broker "+tt.site.Options.URL) {
				t.Errorf("found %q, want %q, and %q in\n%s", found, tt.found, tt.says, text)
			}
		})
	}
	if found, _ := examine(t, newTarget(t, home)); slices.Contains(found, "readings warn") {
		t.Errorf("without a site: %q", found)
	}
}
