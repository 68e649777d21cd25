package sources

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
	"github.com/fedmesh/fedmesh/internal/testkit/memory"
	"github.com/fedmesh/fedmesh/internal/testkit/mqtttest"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/spec"
)

func TestSubscriptions(t *testing.T) {
	c := data.Config{Source: data.SourceMQTT, TimeColumn: "t", ColumnByInput: map[string]string{"b": "site/air x.b",
		"a": "site/air  x.a",
		"c": "site/c", "d": "site/c", "e": "halls/+/e v"}}
	all, err := parseTopicSubscriptions(&c)
	var got []string
	for _, s := range all {
		for _, c := range s.columns {
			got = append(got, fmt.Sprintf("%s %s[%s] [%s]", s.topicFilter, c.input, c.Path, s.timeField.path))
		}
	}
	if want := []string{"site/air a[x.a] [t]", "site/air b[x.b] [t]", "site/c c[] []", "site/c d[] []",
		"halls/+/e e[v] [t]"}; err != nil || !slices.Equal(got, want) || len(all) != 3 {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
	for _, tt := range []struct {
		c    data.Config
		want string
	}{
		{data.Config{}, "data.columns: the section is empty; list each input with its topic"},
		{data.Config{ColumnByInput: map[string]string{"a": "site/#/x"}}, `input "a": mqtt: filter "site/#/x": '#' must be`},
		{data.Config{ColumnByInput: map[string]string{"a": "x a..b"}}, `input "a": the JSON path "a..b" contains an ` +
			`empty ` +
			`name`},
		{data.Config{ColumnByInput: map[string]string{"a": ""}}, `input "a": mqtt: filter "": is empty`},
		{data.Config{ColumnByInput: map[string]string{"a": "x/+", "b": "x/y v"}}, "the topics x/+ and x/y overlap"},
		{data.Config{ColumnByInput: map[string]string{"a": "x"}, ShareCount: 2},
			"data.where: the keys where, share and shares are only valid with source"},
		{data.Config{ColumnByInput: map[string]string{"a": "x"}, TimeFormat: "iso"}, `data.time: unknown time format ` +
			`"iso"`},
	} {
		var problems spec.ProblemList
		tt.c.Source = data.SourceMQTT
		CheckConfig(&tt.c, &problems, "data")
		if err := problems.Err(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want %s", tt.c, err, tt.want)
		}
	}
}

// started returns a source that has started collecting.
func started(t *testing.T, c data.Config, e data.CollectorEnv) *collectorSource {
	t.Helper()
	s, err := Open(&c)
	if err != nil {
		t.Fatal(err)
	}
	if err = s.Probe(); err != nil {
		t.Fatal(err)
	}
	if err := s.(data.ReadingCollector).Start(e); err != nil {
		t.Fatal(err)
	}
	return s.(*collectorSource)
}

func mustClose(t *testing.T, s data.Source) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// wantTroubles checks the current troubles. Each element of texts is the kind of a trouble with a part of its
// description.
func wantTroubles(t *testing.T, s *collectorSource, wanted []string, texts ...string) {
	t.Helper()
	got := s.recorder.stats.currentTroubles(wanted)
	for i, trouble := range got {
		if len(got) != len(texts) || !strings.Contains(string(trouble.Kind)+": "+trouble.Text, texts[i]) {
			t.Errorf("troubles %+v, want %q", got, texts)
			return
		}
	}
	if len(got) != len(texts) {
		t.Errorf("troubles %+v, want %q", got, texts)
	}
}

// TestMQTT checks the readings from topics, and the start and end of each trouble.
func TestMQTT(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refuse := true
		b := memory.New(memory.Options{MailboxMessages: 4, Refuse: func(_, filter string) bool {
			return refuse && filter == "site/door"
		}})
		e := envAt(t.TempDir())
		e.ConnectBroker = func(func(mqtt.ObservedMessage)) (mqtt.Conn, error) {
			return b.Session("device-data", nil, func() time.Duration { return 20 * time.Minute }), nil
		}
		gateway := b.Connect("gateway", nil)
		defer gateway.Close()
		s := started(t, data.Config{Source: data.SourceMQTT, TimeColumn: "t",
			ColumnByInput: map[string]string{"temp": "site/+/air temp",
				"hum": "site/+/air hum", "door": "site/door"}}, e)
		send := func(topic, payload string, retained bool) {
			t.Helper()
			m := mqtt.Message{Topic: topic, Payload: []byte(payload), Retained: retained}
			if err := gateway.Publish(m); err != nil {
				t.Error(err)
			}
			synctest.Wait()
		}
		now := time.Now().Unix() // synctest starts in 2000
		send("site/a/air", fmt.Sprintf(`{"t":%d,"temp":21,"hum":40}`, now), true)
		send("site/b/air", fmt.Sprintf(`{"t":%d,"temp":22}`, now+1), false)
		send("site/b/air", `{"temp`, false)
		send("else/b/air", `{"t":1,"temp":22}`, false)
		wantTroubles(t, s, []string{"temp", "hum", "door"}, "broker: the site's MQTT broker refuses the subscription "+
			"to "+
			"site/door")
		if err := s.Probe(); err == nil || !strings.Contains(err.Error(), "refuses the subscription to site/door") {
			t.Errorf("nothing is recorded yet: %v", err)
		}
		pass(silentAfter)
		wantTroubles(t, s, []string{"temp", "hum", "door", "co2"},
			"broker: the site's MQTT broker refuses the subscription to site/door",
			`silent: input "temp": no readings received from topic site/+/air since 2000-01-01T00:00:00Z`,
			`silent: input "hum": no readings received from topic site/+/air since`,
			`silent: input "door": no readings received from topic site/door since the start of agentd`,
			`silent: the data source has no input "co2"`)
		refuse = false
		b.Disconnect("device-data")
		synctest.Wait()
		wantTroubles(t, s, nil, "broker: not connected to the site's MQTT broker: memory: the connection was cut")
		send("site/door", "open", true)
		pass(20 * time.Minute)
		wantTroubles(t, s, nil)
		at := time.Now().UnixNano()
		send("site/door", "shut", true)
		pass(ringWriteInterval)
		if err := s.Probe(); err != nil {
			t.Error(err)
		}
		got := come(t, s.recorder.newReadingFeed(nil))
		// The value "open" of the door and the values of site a arrive again as retained messages. The message of the
		// door has no time, the message of site a has one.
		want := []data.Reading{{Input: "hum", Time: now * 1e9, Value: 40}, {Input: "temp", Time: now * 1e9, Value: 21},
			{Input: "temp", Time: (now + 1) * 1e9, Value: 22}, {Input: "hum", Time: now * 1e9, Value: 40},
			{Input: "temp", Time: now * 1e9, Value: 21},
			{Input: "door", Time: at, Text: "shut", Value: numberFromText("shut")}}
		if !same(got, want) {
			t.Errorf("%+v, want %+v", got, want)
		}
		columns := s.recorder.stats.columnReports()
		if c := columns[1]; c.Name != "hum" || c.Used != 2 || c.Unused[grid.ReasonMissing] != 1 ||
			c.Unused[grid.ReasonMalformed] != 1 || c.LastUnusedWhere != "site/b/air" {
			t.Errorf("%+v", c)
		}
		mustClose(t, s)
	})
}

// TestMQTTDropped checks that messages dropped by a full mailbox are counted.
func TestMQTTDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := envAt(t.TempDir())
		var tell func(mqtt.ObservedMessage)
		b := memory.New(memory.Options{})
		e.ConnectBroker = func(observe func(mqtt.ObservedMessage)) (mqtt.Conn, error) {
			tell = observe
			return b.Session("device-data", nil, nil), nil
		}
		s := started(t, data.Config{Source: data.SourceMQTT, ColumnByInput: map[string]string{"a": "site/a",
			"b": "site/b"}},
			e)
		tell(mqtt.ObservedMessage{IsIncoming: true, Topic: "site/a", IsDropped: true})
		tell(mqtt.ObservedMessage{IsIncoming: true, Topic: "site/a"})
		tell(mqtt.ObservedMessage{Topic: "site/a", IsDropped: true})
		if c := s.recorder.stats.columnReports(); c[0].Unused[grid.ReasonNoRoom] != 1 || len(c[1].Unused) != 0 {
			t.Errorf("%+v", c)
		}
		mustClose(t, s)
	})
}

// TestMQTTCannotConnect checks that starting a source with an invalid broker configuration returns an error and leaves
// no resources behind.
func TestMQTTCannotConnect(t *testing.T) {
	s, err := Open(&data.Config{Source: data.SourceMQTT, ColumnByInput: map[string]string{"a": "site/a"}})
	if err != nil {
		t.Fatal(err)
	}
	bad := errors.New("no such file")
	e := envAt(t.TempDir())
	e.ConnectBroker = func(func(mqtt.ObservedMessage)) (mqtt.Conn, error) { return nil, bad }
	if err := s.(data.ReadingCollector).Start(e); !errors.Is(err, bad) {
		t.Errorf("error %v", err)
	}
	mustClose(t, s)
}

// TestMQTTWithMosquitto checks a source with the broker Mosquitto, whose access rules allow the device to read one
// topic and to write none. The broker is killed and restarted.
func TestMQTTWithMosquitto(t *testing.T) {
	m := brokers.NewMosquitto(t, []byte(brokers.AnonymousListenerConf+"acl_file /etc/mosquitto/rules\n"))
	m.Write(t, "rules", []byte("topic read site/air\nuser gateway\ntopic write site/#\n"))
	m.Start(t)
	e := envAt(t.TempDir())
	var dropped []mqtt.ObservedMessage
	e.ConnectBroker = func(observe func(mqtt.ObservedMessage)) (mqtt.Conn, error) {
		return mqtt.Dial(context.Background(), mqtt.Options{URL: "tcp://" + m.Address, ClientID: "device-data",
			MaxReconnectDelay: 20 * time.Millisecond, ObserveMessage: func(x mqtt.ObservedMessage) {
				if !x.IsIncoming {
					dropped = append(dropped, x)
				}
				observe(x)
			}})
	}
	s := started(t, data.Config{Source: data.SourceMQTT, ColumnByInput: map[string]string{"temp": "site/air temp",
		"hum": "site/air hum"}}, e)
	for life := range 2 {
		if life > 0 {
			m.Kill()
			m.Start(t)
		}
		gateway := mqtttest.Dial(t, mqtt.Options{URL: "tcp://" + m.Address, ClientID: "gateway", Username: "gateway"})
		used := func() uint64 {
			for _, c := range s.recorder.stats.columnReports() {
				if c.Name == "temp" {
					return c.Used
				}
			}
			return 0
		}
		// Messages sent before the subscription are lost.
		tick := time.NewTicker(5 * time.Millisecond)
		for before := used(); used() == before; <-tick.C {
			mqtttest.Publish(t, gateway, mqtt.Message{Topic: "site/air", Payload: []byte(`{"temp":21.5,"hum":40}`)})
		}
		tick.Stop()
		_ = gateway.Close()
	}
	mustClose(t, s)
	if dropped != nil {
		t.Errorf("the source has published %+v", dropped)
	}
	r := record(t, e)
	got := come(t, r.newReadingFeed(nil))
	if len(got) < 4 || got[0].Value != 40 || got[1].Value != 21.5 || got[1].Input != "temp" {
		t.Errorf("recorded %+v", got)
	}
	if err := r.close(); err != nil {
		t.Error(err)
	}
}

// TestTopicsWithSpaces checks that quoted topics may contain spaces. A path with a slash must be reported with a
// working remedy, because it is probably part of a topic without quotes.
func TestTopicsWithSpaces(t *testing.T) {
	for text, want := range map[string]string{
		`"smartthings/Grey Water Meter/temperature"`:         `smartthings/Grey Water Meter/temperature []`,
		`"smartthings/Grey Water Meter/temperature" value.t`: `smartthings/Grey Water Meter/temperature [value.t]`,
		`"a\"b/+/c d" v`: `a"b/+/c d [v]`,
		`site/air v`:     `site/air [v]`,
	} {
		all, err := parseTopicSubscriptions(&data.Config{Source: data.SourceMQTT,
			ColumnByInput: map[string]string{"x": text}})
		if err != nil || fmt.Sprintf("%s [%s]", all[0].topicFilter, all[0].columns[0].Path) != want {
			t.Errorf("%s: %+v, %v; want %s", text, all, err, want)
		}
	}
	if _, err := parseTopicSubscriptions(&data.Config{Source: data.SourceMQTT, ColumnByInput: map[string]string{"x": `"a b v`}}); err == nil {
		t.Error("a quote without an end is no error")
	}
	c := data.Config{Source: data.SourceMQTT,
		ColumnByInput: map[string]string{"temp": "smartthings/Grey Water Meter/temperature"}}
	var problems spec.ProblemList
	CheckConfigAgainstFile(&c, &problems, "data")
	err := problems.Err()
	remedy := `'"smartthings/Grey Water Meter/temperature"'`
	if err == nil || !strings.Contains(err.Error(), remedy) {
		t.Fatalf("%v, want %s", err, remedy)
	}
	c.ColumnByInput["temp"] = strings.Trim(remedy, "'")
	problems = spec.ProblemList{}
	CheckConfigAgainstFile(&c, &problems, "data")
	if all, err := parseTopicSubscriptions(&c); problems.Err() != nil || err != nil ||
		all[0].topicFilter != "smartthings/Grey Water Meter/temperature" || len(all[0].columns[0].Path) > 0 {
		t.Errorf("%v, %v, %+v", problems.Err(), err, all)
	}
}
