package doctor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
	"github.com/fedmesh/fedmesh/internal/testkit/mqtttest"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/mqtt/broker"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// newTarget returns a doctor target for a coordinator that uses the broker at url.
func newTarget(t *testing.T, url string) *Target {
	t.Helper()
	topics, err := mqtt.NewTopics("", "air")
	if err != nil {
		t.Fatal(err)
	}
	return &Target{Program: "coordinator", StateDir: t.TempDir(), NeededFreeBytes: 1, Broker: BrokerTarget{
		Options:           mqtt.Options{URL: url, ClientID: topics.ClientID(wire.CoordinatorID)},
		SubscribedFilters: []string{topics.AllUpdatePartsFilter(), topics.AllPresencesFilter()},
		SelfTestTopic:     topics.SelfTest(wire.CoordinatorID), NeedsRetainedMessages: true, WantedQueueLength: 300,
	}}
}

// bounded is a line that the configuration of every good broker contains.
const bounded = "memory_limit 1073741824"

// openBroker starts a Mosquitto. Apart from the given configuration lines, its configuration has no faults.
func openBroker(t *testing.T, lines ...string) string {
	t.Helper()
	return brokers.OpenMosquitto(t, append(lines, bounded)...)
}

// examine returns the subject and the status of all findings that are not good, and the text of all findings.
func examine(t *testing.T, p *Target) (found []string, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var b strings.Builder
	bad := p.Examine(ctx, func(f Finding) {
		newTextFindingPrinter(&b)(f)
		if f.State != Good {
			found = append(found, f.Subject+" "+string(f.State))
		}
		if f.State == Bad {
			if f.Remedy == "" {
				t.Errorf("%+v does not say what to do", f)
			}
		}
	})
	if n := strings.Count(strings.Join(found, "\n"), " bad"); n != bad {
		t.Errorf("%d are bad, %d are counted", n, bad)
	}
	return found, b.String()
}

func TestExamine(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		lines  []string // additional lines in mosquitto.conf
		change func(*Target)
		found  string
		says   string
	}{
		{"all is well", nil, nil, "", "the broker can queue at least 300 messages for a slow reader"},
		{"a short queue", []string{"max_queued_messages 100"}, nil, "queue bad", "max_queued_messages 300"},
		{"small messages", []string{"message_size_limit 1000"}, nil, "messages bad", "set max_packet_size 131072"},
		{"nothing retained", []string{"retain_available false"}, nil, "retained bad", "retain_available true"},
		{"another coordinator", nil, func(p *Target) {
			url := p.Broker.Options.URL
			p.FindAnnouncement = func(_ context.Context, at string) Finding {
				return Finding{Subject: "coordinator", State: Bad, Observation: fmt.Sprint("another key, ", at == url),
					Remedy: "correct it"}
			}
		}, "coordinator bad", "another key, true"},
		{"a full disk", nil, func(p *Target) { p.NeededFreeBytes = 1 << 60 }, "state folder warn",
			"free some disk space"},
		{"no data", nil, func(p *Target) {
			p.CheckData = func(context.Context) []Finding {
				return []Finding{{Subject: "data", State: Bad, Observation: "rows.csv is empty", Remedy: "fill it"}}
			}
		}, "data bad", "rows.csv is empty"},
		{"users are client ids", []string{"use_username_as_clientid true"}, func(p *Target) {
			p.Broker.Options.Username, p.Broker.PresenceTopic, p.Broker.WantedQueueLength = "air-one",
				"fl/v1/air/p/air-one", 0
		}, "", "received a test message"},
		{"no folder yet", nil, func(p *Target) { p.StateDir = filepath.Join(p.StateDir, "none") }, "",
			"does not exist yet; the program creates it at the first start"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := newTarget(t, openBroker(t, tt.lines...))
			if tt.change != nil {
				tt.change(p)
			}
			found, text := examine(t, p)
			if strings.Join(found, ", ") != tt.found || !strings.Contains(text, tt.says) {
				t.Errorf("found %q, want %q, and %q in\n%s", found, tt.found, tt.says, text)
			}
			if left, err := os.ReadDir(p.StateDir); len(left) > 0 {
				t.Errorf("the doctor left %v (%v)", left, err)
			}
		})
	}
}

// TestRefusedSubscription checks that the doctor names a refused subscription. It uses the embedded broker, because
// Mosquitto accepts such a subscription and withholds the messages.
func TestRefusedSubscription(t *testing.T) {
	t.Parallel()
	topics, err := mqtt.NewTopics("", "air")
	if err != nil {
		t.Fatal(err)
	}
	b, err := broker.Start(broker.Options{Authenticate: func(_, _, _ string) bool { return true },
		Allow: func(_, topic string, _ bool) bool { return topic != topics.AllPresencesFilter() }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	p := newTarget(t, b.URL())
	p.Broker.Options.Username, p.Broker.WantedQueueLength = p.Broker.Options.ClientID, 0
	found, text := examine(t, p)
	if !slices.Equal(found, []string{"access bad"}) ||
		!strings.Contains(text, "the broker rejected the subscription to "+topics.AllPresencesFilter()) {
		t.Errorf("found %q in\n%s", found, text)
	}
}

// presencesOnly starts a broker whose clients may only read presence messages.
func presencesOnly(t *testing.T) string {
	t.Helper()
	rules := filepath.Join(t.TempDir(), "acl")
	if err := os.WriteFile(rules, []byte("topic read fl/v1/air/p/+\n"),
		0o644); err != nil { //nolint:gosec // Mosquitto reads it as another user
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(rules), 0o755); err != nil { //nolint:gosec // the same
		t.Fatal(err)
	}
	return openBroker(t, "acl_file "+rules)
}

// TestAccess checks that the doctor names a topic of the daemon that the access rules forbid.
func TestAccess(t *testing.T) {
	t.Parallel()
	p := newTarget(t, presencesOnly(t))
	p.Broker.NeedsRetainedMessages, p.Broker.WantedQueueLength = false, 0
	found, text := examine(t, p)
	if !slices.Contains(found, "messages bad") || !strings.Contains(text, "topic readwrite fl/v1/air/m/loop") {
		t.Errorf("found %q in\n%s", found, text)
	}
}

// TestEachNodeIsExamined checks that the doctor examines each node of a broker cluster.
func TestEachNodeIsExamined(t *testing.T) {
	t.Parallel()
	p := newTarget(t, "tcp://"+brokers.FreeAddress(t))
	good := openBroker(t)
	p.Broker.Options.MoreURLs = []string{good}
	found, text := examine(t, p)
	if !slices.Equal(found, []string{"network bad"}) ||
		!strings.Contains(text, p.Broker.Options.URL+": cannot connect to the broker") ||
		!strings.Contains(text, good+": the broker can queue at least 300 messages for a slow reader") {
		t.Errorf("found %q in\n%s", found, text)
	}
}

// TestCloneIsNamed runs a second client with the doctor's client id, which repeatedly disconnects the doctor. The
// access rules withhold the message that would end the self-test. The doctor must report the second client.
func TestCloneIsNamed(t *testing.T) {
	t.Parallel()
	p := newTarget(t, presencesOnly(t))
	clone := p.Broker.Options
	clone.MaxReconnectDelay = 200 * time.Millisecond
	conn, err := mqtt.Dial(t.Context(), clone)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	found, text := examine(t, p)
	if !slices.Equal(found, []string{"identity bad"}) ||
		!strings.Contains(text, "another client uses the client id air-coordinator") {
		t.Errorf("found %q in\n%s", found, text)
	}
}

// TestCloneIsSeen checks that the doctor detects another client with the daemon's client id by the will message of that
// client. Otherwise the doctor could finish before the other client reconnects. A retained presence message of a client
// that has left must not be reported.
func TestCloneIsSeen(t *testing.T) {
	t.Parallel()
	p := newTarget(t, openBroker(t))
	p.Broker.PresenceTopic, p.Broker.SubscribedFilters, p.Broker.WantedQueueLength = "presence", []string{"presence"}, 0
	there := mqtt.Message{Topic: "presence", Payload: []byte("online"), QoS: mqtt.AtLeastOnce, Retained: true}
	other := mqtttest.Dial(t, mqtt.Options{URL: p.Broker.Options.URL, ClientID: "another"})
	other.Subscribe(mqtt.AtLeastOnce, "presence")
	mqtttest.Publish(t, other, there)
	mqtttest.Received(t, other) // wait until the broker has stored the retained message
	if found, text := examine(t, p); len(found) > 0 {
		t.Errorf("nobody is there: found %q in\n%s", found, text)
	}
	clone := p.Broker.Options
	clone.MaxReconnectDelay = time.Minute
	there.Payload = []byte("lost")
	clone.Will = func() mqtt.Message { return there }
	mqtttest.Dial(t, clone)
	found, text := examine(t, p)
	if !slices.Equal(found, []string{"identity bad"}) || !strings.Contains(text, "another client was connected with") {
		t.Errorf("found %q in\n%s", found, text)
	}
}

func TestNobodyThere(t *testing.T) {
	t.Parallel()
	found, text := examine(t, newTarget(t, "tcp://"+brokers.FreeAddress(t)))
	if !slices.Equal(found, []string{"network bad"}) || !strings.Contains(text, "check that the broker is running") {
		t.Errorf("found %q in\n%s", found, text)
	}
}

// TestRunningDaemonIsLeftAlone checks that the doctor does not disconnect a running daemon.
func TestRunningDaemonIsLeftAlone(t *testing.T) {
	t.Parallel()
	p := newTarget(t, openBroker(t))
	lock, err := store.LockStateFolder(p.StateDir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lock.Unlock(); err != nil {
			t.Error(err)
		}
	})
	conn, err := mqtt.Dial(t.Context(), p.Broker.Options)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, up := (<-conn.Events()).(mqtt.LinkUp); !up {
		t.Fatal("the daemon is not connected")
	}
	found, text := examine(t, p)
	if !slices.Equal(found, []string{"broker skipped"}) || !strings.Contains(text, "coordinator status") {
		t.Errorf("found %q in\n%s", found, text)
	}
	conn.Subscribe(mqtt.AtLeastOnce, "x")
	if err := conn.Publish(mqtt.Message{Topic: "x", QoS: mqtt.AtLeastOnce}); err != nil {
		t.Fatal(err)
	}
	select {
	case e := <-conn.Events():
		if _, ok := e.(mqtt.MessageReceived); !ok {
			t.Errorf("the daemon has %T", e)
		}
	case <-time.After(answerTimeout):
		t.Error("the daemon hears nothing")
	}
}
