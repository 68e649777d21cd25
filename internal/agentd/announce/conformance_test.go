package announce_test

import (
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/agent/predict"
	"github.com/fedmesh/fedmesh/data/sparkplug"
	"github.com/fedmesh/fedmesh/internal/agentd/announce"
	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/modelfile"
	"github.com/fedmesh/fedmesh/mqtt"
)

// site simulates a broker that keeps retained messages. The only client is the publisher under test.
type site struct {
	t        *testing.T
	now      time.Time
	retained map[string]string
	sent     []mqtt.Message
	filters  []string
	room     int // number of further messages that fit into the publisher's outbox
}

func newSite(t *testing.T) *site {
	return &site{t: t, now: time.Unix(1_800_000_000, 0), retained: map[string]string{}, room: 1000}
}

// Publish implements announce.Connection.
func (s *site) Publish(m mqtt.Message) error {
	if err := m.Validate(); err != nil {
		s.t.Errorf("message on topic %q: %v", m.Topic, err)
	}
	if s.room == 0 {
		return mqtt.ErrOutboxFull
	}
	s.room--
	s.sent = append(s.sent, m)
	if m.Retained {
		if s.retained[m.Topic] = string(m.Payload); len(m.Payload) == 0 {
			delete(s.retained, m.Topic)
		}
	}
	return nil
}

// Subscribe implements announce.Connection.
func (s *site) Subscribe(_ mqtt.QoS, filters ...string) { s.filters = filters }

// start returns a connected publisher with the state folder dir.
func (s *site) start(dir, system string) *announce.Publisher {
	p := announce.NewPublisher(announce.New(system, hall), dir, func() time.Time { return s.now },
		slog.New(slog.DiscardHandler))
	p.Will()
	p.Start(s)
	p.HandleEvent(mqtt.LinkUp{})
	return p
}

func (s *site) topics() []string { return slices.Sorted(maps.Keys(s.retained)) }

// deletions returns the topics of the deletions that were sent.
func (s *site) deletions() (topics []string) {
	for _, m := range s.sent {
		if m.Retained && len(m.Payload) == 0 {
			topics = append(topics, m.Topic)
		}
	}
	return topics
}

var hall = announce.Device{Federation: "air", ID: "hall-1", Version: "v1.2.3", PID: 42, Topic: "site/hall/forecast",
	Now: func() time.Time { return time.Unix(1_800_000_000, 0) }}

// forecast returns a forecast for the given target, made at noon for a row that is n hours old.
func forecast(target string, n int) predict.Forecast {
	r := 0.5
	return predict.Forecast{RowTime: time.Date(2026, 3, 1, 12-n, 0, 0, 0, time.UTC), ModelName: "7/42", Value: 21.8,
		Target:   modelfile.PredictionTarget{TargetColumn: target, Unit: "°C", Horizon: time.Hour},
		Residual: &r, AnomalyScore: 1.5, IsAnomaly: true}
}

func publish(t *testing.T, p *announce.Publisher, f predict.Forecast) {
	t.Helper()
	if err := p.PublishForecast(f); err != nil {
		t.Fatal(err)
	}
}

const indoor, outdoor = "temperature in 1h", "outdoor/+/# temperature in 1h \u00e4"

// TestConformance runs the tests of this file with the announcer of each system.
func TestConformance(t *testing.T) {
	for _, system := range settings.AnnounceSystems {
		t.Run(system, func(t *testing.T) {
			t.Run("Presence", func(t *testing.T) { testPresence(t, system) })
			t.Run("TwoDevices", func(t *testing.T) { testTwoDevices(t, system) })
			t.Run("Stable", func(t *testing.T) { testStable(t, system) })
			t.Run("TargetChange", func(t *testing.T) { testTargetChange(t, system) })
			t.Run("SystemChange", func(t *testing.T) { testSystemChange(t, system) })
			t.Run("Leave", func(t *testing.T) { testLeave(t, system) })
			t.Run("Requests", func(t *testing.T) { testRequests(t, system) })
			t.Run("OutboxFull", func(t *testing.T) { testOutboxFull(t, system) })
			t.Run("BrokerLostItsMessages", func(t *testing.T) { testBrokerLostItsMessages(t, system) })
		})
	}
}

// testPresence checks that the publisher reports the device as online after each connect, and as offline in its will
// and at a normal end.
func testPresence(t *testing.T, system string) {
	s := newSite(t)
	p := s.start(t.TempDir(), system)
	will := p.Will()
	if will.Topic == "" {
		if system != settings.AnnounceJSON {
			t.Error("no will")
		}
		return
	}
	if !will.Retained {
		p.Stop(false)
		if got := s.sent[len(s.sent)-1]; got.Topic != will.Topic || string(got.Payload) != string(will.Payload) {
			t.Errorf("at the end: %+v, want the will %+v", got, will)
		}
		return
	}
	online := s.retained[will.Topic]
	if online == string(will.Payload) || online == "" {
		t.Errorf("after connecting, %s is %q; the will is %+v", will.Topic, online, will)
	}
	p.Stop(false)
	if got := s.retained[will.Topic]; got != string(will.Payload) {
		t.Errorf("after the end, %s is %q, want %q", will.Topic, got, will.Payload)
	}
	p.HandleEvent(mqtt.LinkUp{})
	if got := s.retained[will.Topic]; got != online {
		t.Errorf("after reconnecting, %s is %q, want %q", will.Topic, got, online)
	}
}

// testTwoDevices checks that two devices that share the topic for plain JSON forecasts share no other topic.
func testTwoDevices(t *testing.T, system string) {
	topics := map[string]string{} // device by topic
	for _, device := range []announce.Device{{Federation: "air", ID: "hall"}, {Federation: "air", ID: "hall.x"},
		{Federation: "air", ID: "hall_x"}, {Federation: "air_hall", ID: "x"}} {
		device.Topic, device.Now = hall.Topic, hall.Now
		a, f := announce.New(system, device), forecast("x", 0)
		messages, err := a.Forecast(f)
		if err != nil {
			t.Fatal(err)
		}
		birth, forecasts := a.Birth(announce.Health{}, &f.Target)
		mine := map[string]bool{}
		for _, m := range slices.Concat(messages[1:], birth, forecasts, []mqtt.Message{a.Will()}) {
			mine[m.Topic] = m.Topic != ""
		}
		for topic, is := range mine {
			if other := topics[topic]; is && other != "" {
				t.Errorf("%s and %s both publish on %s", other, device.ID, topic)
			}
			topics[topic] = device.ID
		}
	}
}

// testStable checks that topics and announcements are the same after a restart and with another model.
func testStable(t *testing.T, system string) {
	s, dir := newSite(t), t.TempDir()
	publish(t, s.start(dir, system), forecast(indoor, 0))
	before := maps.Clone(s.retained)
	p := s.start(dir, system)
	f := forecast(indoor, 0)
	publish(t, p, f)
	if !maps.Equal(before, s.retained) {
		t.Errorf("after a restart: %v, want %v", s.retained, before)
	}
	f.ModelName = "8/1"
	publish(t, p, f)
	if got := s.topics(); !slices.Equal(got, slices.Sorted(maps.Keys(before))) || len(s.deletions()) > 0 {
		t.Errorf("with another model: topics %v, deleted %v, want %v", got, s.deletions(), before)
	}
}

// testTargetChange checks that a new target replaces the announcements of the previous target, also after a restart.
func testTargetChange(t *testing.T, system string) {
	want := newSite(t)
	publish(t, want.start(t.TempDir(), system), forecast(outdoor, 0))
	for _, restarts := range []bool{false, true} {
		s, dir := newSite(t), t.TempDir()
		p := s.start(dir, system)
		publish(t, p, forecast(indoor, 0))
		if restarts {
			p = s.start(dir, system)
		}
		publish(t, p, forecast(outdoor, 0))
		if !maps.Equal(s.retained, want.retained) {
			t.Errorf("restart %v: %v, want %v", restarts, s.retained, want.retained)
		}
		if len(want.retained) > 0 && len(s.deletions()) == 0 {
			t.Error("the announcements of the previous target were not deleted")
		}
		back := newSite(t)
		publish(t, back.start(t.TempDir(), system), forecast(indoor, 0))
		s.sent = nil
		publish(t, p, forecast(indoor, 0))
		for _, topic := range s.deletions() {
			if s.retained[topic] != "" || !maps.Equal(s.retained, back.retained) {
				t.Errorf("restart %v, with the first target again: %s is deleted; %v, want %v", restarts, topic,
					s.retained, back.retained)
			}
		}
	}
}

// testSystemChange checks that a start with another system deletes the announcements of the previous system, and that
// the deletion is repeated until the broker has received it.
func testSystemChange(t *testing.T, system string) {
	for _, next := range settings.AnnounceSystems {
		if next == system {
			continue
		}
		s, dir, want := newSite(t), t.TempDir(), newSite(t)
		publish(t, s.start(dir, system), forecast(indoor, 0))
		old := s.topics()
		want.start(t.TempDir(), next)
		s.start(dir, next).Close()
		if !maps.Equal(s.retained, want.retained) {
			t.Errorf("with %s: %v, want %v", next, s.retained, want.retained)
		}
		s.sent = nil
		p := s.start(dir, next)
		if got := s.deletions(); !slices.Equal(got, old) {
			t.Errorf("in the next start %v are deleted, want %v", got, old)
		}
		for _, m := range s.sent {
			p.ObserveTraffic(mqtt.ObservedMessage{Topic: m.Topic, PayloadBytes: len(m.Payload)})
		}
		p.Close()
		s.sent = nil
		s.start(dir, next)
		if got := s.deletions(); len(got) > 0 {
			t.Errorf("%v are deleted again", got)
		}
	}
}

// testLeave checks that a device deletes its announcements when it has left its federation.
func testLeave(t *testing.T, system string) {
	s, dir := newSite(t), t.TempDir()
	p := s.start(dir, system)
	publish(t, p, forecast(indoor, 0))
	if got, want := announce.RemainingTopics(dir), s.topics(); !slices.Equal(got, want) {
		t.Errorf("the remaining topics are %v, want %v", got, want)
	}
	p.Stop(true)
	if len(s.retained) > 0 {
		t.Errorf("%v remain", s.retained)
	}
	for _, topic := range s.deletions() {
		p.ObserveTraffic(mqtt.ObservedMessage{Topic: topic})
	}
	p.Close()
	if got := announce.RemainingTopics(dir); len(got) > 0 {
		t.Errorf("the remaining topics are %v", got)
	}
}

// testRequests checks that the publisher answers requests for an announcement, whatever their content, at most once per
// interval.
func testRequests(t *testing.T, system string) {
	s := newSite(t)
	a := announce.New(system, hall)
	p := s.start(t.TempDir(), system)
	if !slices.Equal(s.filters, a.RequestFilters()) {
		t.Errorf("subscribed to %v, want %v", s.filters, a.RequestFilters())
	}
	if len(s.filters) == 0 {
		return
	}
	births := func(m mqtt.Message) int {
		s.sent = nil
		p.HandleEvent(mqtt.MessageReceived{Message: m})
		return len(s.sent)
	}
	request := mqtt.Message{Topic: s.filters[0], Payload: []byte("online")}
	if system == settings.AnnounceSparkplug {
		command := sparkplug.RebirthCommand(s.now)
		request.Payload = command.Encode()
		command.Metrics[0].Bits = 0
		if n := births(mqtt.Message{Topic: s.filters[0], Payload: command.Encode()}); n > 0 {
			t.Errorf("a command with the value false causes %d messages", n)
		}
	}
	if births(request) == 0 {
		t.Error("a request is ignored")
	}
	if n := births(request); n > 0 {
		t.Errorf("a second request causes %d messages", n)
	}
	s.now = s.now.Add(time.Minute)
	old := request
	old.Retained = true
	if n := births(old); n > 0 {
		t.Errorf("a retained request causes %d messages", n)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		payload := make([]byte, random.IntN(64))
		for i := range payload {
			payload[i] = byte(random.IntN(256))
		}
		births(mqtt.Message{Topic: s.filters[0], Payload: payload})
	}
	births(mqtt.Message{Topic: s.filters[0], Payload: make([]byte, 10<<20)})
	s.now = s.now.Add(time.Minute)
	if births(request) == 0 {
		t.Error("a later request is ignored")
	}
}

// testOutboxFull checks that a forecast is not published in part if the outbox is full, and that announcements that did
// not fit are published later.
func testOutboxFull(t *testing.T, system string) {
	s := newSite(t)
	s.room = 0
	p := s.start(t.TempDir(), system)
	if err := p.PublishForecast(forecast(indoor, 0)); !errors.Is(err, mqtt.ErrOutboxFull) {
		t.Errorf("error %v", err)
	}
	s.room = 1
	if err := p.PublishForecast(forecast(indoor, 0)); system != settings.AnnounceJSON &&
		(err == nil || errors.Is(err, mqtt.ErrOutboxFull)) {
		t.Errorf("error %v: the first message would be repeated", err)
	}
	s.room = 1000
	publish(t, p, forecast(indoor, 0))
	want := newSite(t)
	other := want.start(t.TempDir(), system)
	publish(t, other, forecast(indoor, 0))
	if !maps.Equal(s.retained, want.retained) {
		t.Errorf("%v, want %v", s.retained, want.retained)
	}
	ill := announce.Health{Problems: []string{"the disk is full"}}
	other.SetHealth(ill)
	s.room = 0
	p.SetHealth(ill)
	s.room = 1000
	publish(t, p, forecast(indoor, 0))
	if !maps.Equal(s.retained, want.retained) {
		t.Errorf("%v, want the health %v", s.retained, want.retained)
	}
}

// testBrokerLostItsMessages checks that a connect restores all retained messages.
func testBrokerLostItsMessages(t *testing.T, system string) {
	s := newSite(t)
	p := s.start(t.TempDir(), system)
	publish(t, p, forecast(indoor, 0))
	want := maps.Clone(s.retained)
	clear(s.retained)
	p.HandleEvent(mqtt.LinkUp{})
	if !maps.Equal(s.retained, want) {
		t.Errorf("%v, want %v", s.retained, want)
	}
}
