package mqtt_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/mqtt/broker"
)

const loop = "fl/v1/air/s/air-press/loop"

// selfTested runs a self-test to its end and returns the report.
func selfTested(t *testing.T, url string, patience time.Duration) mqtt.SelfTestReport {
	t.Helper()
	s := dialing(t, mqtt.Options{URL: url, ClientID: "air-press", Username: "air-press"})
	test := mqtt.NewBrokerSelfTest(s, loop, patience, rand.New(rand.NewPCG(1, 2)))
	late := time.After(time.Minute)
	for {
		var tick <-chan time.Time
		if at, ok := test.Deadline(); ok {
			tick = time.After(time.Until(at))
		}
		var ended *mqtt.SelfTestReport
		select {
		case e := <-s.Events():
			_, ended = test.Step(time.Now(), e)
		case <-tick:
			ended = test.Tick(time.Now())
		case <-late:
			t.Fatal("the test does not end")
		}
		if ended != nil {
			return *ended
		}
	}
}

// TestR12SelfTest runs the self-test with brokers that deliver messages, drop them silently, or disconnect (R12).
func TestR12SelfTest(t *testing.T) {
	t.Parallel()
	// A case in which the broker never answers uses a short timeout, all other cases a long timeout.
	const short, long = 2 * time.Second, 8 * time.Second
	for name, c := range map[string]struct {
		patience time.Duration
		broker   func(t *testing.T) testBroker
		want     mqtt.SelfTestResult
		advice   string
	}{
		"embedded": {long, func(t *testing.T) testBroker { return newEmbedded(t, 128<<10) },
			mqtt.SelfTestPassed, ""},
		"embedded with small packets": {long, func(t *testing.T) testBroker { return newEmbedded(t, 20_000) },
			mqtt.SelfTestDisconnected, "closes the connection on messages of 61504 bytes"},
		"embedded that denies": {long, func(*testing.T) testBroker {
			return &embedded{options: broker.Options{
				Listen: "127.0.0.1:0", Allow: func(string, string, bool) bool { return false },
				Authenticate: func(string, string, string) bool { return true },
			}}
		}, mqtt.SelfTestDenied, "`topic readwrite " + loop + "`"},
		"mosquitto": {long, func(t *testing.T) testBroker { return newMosquitto(t, 128<<10) },
			mqtt.SelfTestPassed, ""},
		"mosquitto with max_packet_size": {long, func(t *testing.T) testBroker { return newMosquitto(t, 20_000) },
			mqtt.SelfTestDisconnected, "max_packet_size"},
		"mosquitto with a message limit": {short, withLines("message_size_limit 20000\n"), mqtt.SelfTestSwallowed,
			"message_size_limit"},
		"mosquitto that denies":            {short, withACL("topic read #\n"), mqtt.SelfTestDenied, "acl_file"},
		"mosquitto that denies to read it": {short, withACL("topic write #\n"), mqtt.SelfTestDenied, "acl_file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := c.broker(t)
			b.start(t)
			t.Cleanup(b.stop)
			got := selfTested(t, b.url(), c.patience)
			if got.Result != c.want || got.Topic != loop || !strings.Contains(got.Problem()+got.Remedy(), c.advice) ||
				(got.Remedy() == "") != (c.want == mqtt.SelfTestPassed) {
				t.Errorf("%+v: %s", got, got.Remedy())
			}
		})
	}
}

func withLines(lines string) func(t *testing.T) testBroker {
	return func(t *testing.T) testBroker {
		return mosquittoWith(t, lines)
	}
}

func withACL(rules string) func(t *testing.T) testBroker {
	return func(t *testing.T) testBroker {
		file := filepath.Join(t.TempDir(), "acl")
		if err := os.WriteFile(file, []byte(rules), 0o600); err != nil {
			t.Fatal(err)
		}
		return withLines("acl_file " + file + "\n")(t)
	}
}

// recorder is a Conn that records the sizes of published messages.
type recorder struct {
	mqtt.Conn
	log  []string
	last mqtt.Message
	err  error
}

func (r *recorder) Publish(m mqtt.Message) error {
	if r.err != nil {
		return r.err
	}
	r.last = m
	r.log = append(r.log, fmt.Sprint(len(m.Payload)))
	return nil
}
func (r *recorder) Subscribe(_ mqtt.QoS, filters ...string) { r.log = append(r.log, "+") }
func (r *recorder) Unsubscribe(filters ...string)           { r.log = append(r.log, "-") }

// loopScene steps a self-test manually, with a timeout of one minute.
type loopScene struct {
	t    *testing.T
	conn *recorder
	test *mqtt.BrokerSelfTest
	now  time.Time
}

func newLoopScene(t *testing.T) *loopScene {
	c := new(recorder)
	return &loopScene{t, c, mqtt.NewBrokerSelfTest(c, loop, time.Minute, rand.New(rand.NewPCG(1, 2))), time.Unix(1e9,
		0)}
}

// step passes an event, or a tick at the deadline if e is nil. It compares the result ("" for none) and the recorded
// actions.
func (s *loopScene) step(e mqtt.Event, result mqtt.SelfTestResult, want ...string) {
	s.t.Helper()
	var ended *mqtt.SelfTestReport
	s.conn.log = nil
	if e == nil {
		at, ok := s.test.Deadline()
		if !ok {
			s.t.Fatal("no deadline")
		}
		s.now = at
		ended = s.test.Tick(at)
	} else {
		_, ended = s.test.Step(s.now, e)
	}
	got := mqtt.SelfTestResult("")
	if ended != nil {
		got = ended.Result
	}
	if got != result || !slices.Equal(s.conn.log, want) {
		s.t.Errorf("%T: ended with %q, did %q; want %q, %q", e, got, s.conn.log, result, want)
	}
}

func (s *loopScene) back() mqtt.Event { return mqtt.MessageReceived{Message: s.conn.last} }

const few, large = "8", "61504"

func TestSelfTestPassesOnce(t *testing.T) {
	s := newLoopScene(t)
	s.step(mqtt.LinkUp{}, "", "+")
	s.step(nil, "", few)
	began := s.now
	s.step(s.back(), "")
	s.step(s.back(), "") // the message arrives twice, which QoS 1 allows
	s.conn.err = mqtt.ErrOutboxFull
	s.step(nil, "")
	s.conn.err = nil
	s.step(nil, "", large)
	if d := s.now.Sub(began); d < 2*time.Second || d > 31*time.Second {
		t.Errorf("the large message came after %v", d)
	}
	// This message comes from another client.
	s.step(mqtt.MessageReceived{Message: mqtt.Message{Topic: loop, Payload: make([]byte, 61504)}}, "")
	s.step(s.back(), mqtt.SelfTestPassed, "-")
	s.step(mqtt.LinkDown{}, "")
	s.step(mqtt.LinkUp{}, "") // the test is not repeated after it has passed
	if _, ok := s.test.Deadline(); ok {
		t.Error("it goes on")
	}
	if own, _ := s.test.Step(s.now, mqtt.MessageReceived{Message: mqtt.Message{Topic: "other"}}); own {
		t.Error("it takes what belongs to others")
	}
}

// TestSelfTestDoubts checks that the self-test does not fail after one lost message, after one lost link, or after a
// link lost long after the large message.
func TestSelfTestDoubts(t *testing.T) {
	s := newLoopScene(t)
	s.step(mqtt.LinkUp{}, "", "+")
	s.step(nil, "", few)
	s.step(nil, "", few)
	s.step(s.back(), "")
	s.step(nil, "", large)
	s.step(mqtt.LinkDown{}, "")
	for range 3 {
		s.step(mqtt.LinkUp{}, "", "+")
		s.step(nil, "", few)
		s.step(s.back(), "")
		s.step(nil, "", large)
		s.now = s.now.Add(10 * time.Second)
		s.step(mqtt.LinkDown{}, "")
	}
	s.step(mqtt.LinkUp{}, "", "+")
	s.step(nil, "", few)
	s.step(s.back(), "")
	s.step(nil, "", large)
	s.step(mqtt.LinkDown{}, "") // the link is lost right after the large message, but for the first time in a row
	s.step(mqtt.LinkUp{}, "", "+")
	s.step(nil, "", few)
	s.step(s.back(), "")
	s.step(nil, "", large)
	s.step(nil, "", large)
	s.step(s.back(), mqtt.SelfTestPassed, "-")
}

// TestSelfTestFailsAndIsMadeAgain checks when failed tests are repeated. A test whose small message was lost is
// repeated on the same link, first after 30 s, because a broker applies new access rules to open links. Other failed
// tests are repeated on a new link after an hour.
func TestSelfTestFailsAndIsMadeAgain(t *testing.T) {
	s := newLoopScene(t)
	began := s.now
	s.step(mqtt.LinkUp{}, "", "+")
	s.step(nil, "", few)
	s.step(nil, "", few)
	s.step(nil, mqtt.SelfTestDenied, "-")
	if d := s.now.Sub(began); d > 30*time.Second {
		t.Errorf("denied after %v, want at most 30s: no other message arrived", d)
	}
	for _, wait := range []time.Duration{30 * time.Second, time.Minute} {
		denied := s.now
		s.step(nil, "", "+", few)
		if d := s.now.Sub(denied); d != wait {
			t.Errorf("repeated after %v, want %v", d, wait)
		}
		s.step(nil, "", few)
		s.step(nil, mqtt.SelfTestDenied, "-")
	}
	s.step(nil, "", "+", few)
	s.step(s.back(), "")
	s.step(nil, "", large)
	s.step(nil, "", large)
	s.step(nil, mqtt.SelfTestSwallowed, "-")
	failed := s.now
	s.step(mqtt.LinkDown{}, "")
	s.step(mqtt.LinkUp{}, "", "+")
	s.step(nil, "", few)
	if d := s.now.Sub(failed); d < time.Hour {
		t.Errorf("made again after %v", d)
	}
	// The connection has requested the filter again.
	s.step(mqtt.SubscriptionRefused{Filter: loop, SubackCode: mqtt.SubackFailure}, "")
	s.step(mqtt.SubscriptionRefused{Filter: loop, SubackCode: mqtt.SubackFailure}, mqtt.SelfTestDenied, "-")
}

// TestSelfTestWaitsBehindOthers checks that the full timeout applies while other messages arrive, because the small
// test message may be queued behind them.
func TestSelfTestWaitsBehindOthers(t *testing.T) {
	s := newLoopScene(t)
	began := s.now
	s.step(mqtt.LinkUp{}, "", "+")
	s.step(nil, "", few)
	s.step(mqtt.MessageReceived{Message: mqtt.Message{Topic: "other"}}, "")
	s.step(nil, "", few)
	s.step(nil, mqtt.SelfTestDenied, "-")
	if d := s.now.Sub(began); d < time.Minute {
		t.Errorf("denied after %v while other messages arrived", d)
	}
}
