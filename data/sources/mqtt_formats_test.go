package sources

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/internal/testkit/memory"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/spec"
)

// sparkplugMessage encodes a payload with one metric. Its value is an integer, and its name is omitted if it is empty.
func sparkplugMessage(seq int, at time.Time, name string, alias, value uint64) []byte {
	integer := func(b []byte, number protowire.Number, v uint64) []byte {
		return protowire.AppendVarint(protowire.AppendTag(b, number, protowire.VarintType), v)
	}
	p := integer(integer(nil, 1, uint64(at.UnixMilli())), 3, uint64(seq))
	m := []byte{}
	if name != "" {
		m = protowire.AppendString(protowire.AppendTag(m, 1, protowire.BytesType), name)
	}
	m = integer(integer(integer(m, 2, alias), 4, 7), 10, value)
	return protowire.AppendBytes(protowire.AppendTag(p, 2, protowire.BytesType), m)
}

// formatsHarness runs an MQTT source and publishes messages to it, like a gateway.
type formatsHarness struct {
	*testing.T
	source   *collectorSource
	gateway  mqtt.Conn
	mu       sync.Mutex
	received []mqtt.MessageReceived // messages that the gateway has received
}

// newFormatsHarness starts a source. retained contains the messages that the broker has stored before.
func newFormatsHarness(t *testing.T, c data.Config, retained ...mqtt.Message) *formatsHarness {
	t.Helper()
	c.Source = data.SourceMQTT
	var problems spec.ProblemList
	if CheckConfig(&c, &problems, "data"); problems.Err() != nil {
		t.Fatal(problems.Err())
	}
	b := memory.New(memory.Options{})
	e := envAt(t.TempDir())
	e.ConnectBroker = func(func(mqtt.ObservedMessage)) (mqtt.Conn, error) {
		return b.Session("device-data", nil, nil), nil
	}
	h := &formatsHarness{T: t, gateway: b.Connect("gateway", nil)}
	go func() {
		for event := range h.gateway.Events() {
			if m, isMessage := event.(mqtt.MessageReceived); isMessage {
				h.mu.Lock()
				h.received = append(h.received, m)
				h.mu.Unlock()
			}
		}
	}()
	for _, m := range retained {
		m.Retained = true
		h.publish(m)
	}
	h.source = started(t, c, e)
	synctest.Wait()
	return h
}

func (h *formatsHarness) publish(m mqtt.Message) {
	h.Helper()
	if err := h.gateway.Publish(m); err != nil {
		h.Error(err)
	}
	synctest.Wait()
}

func (h *formatsHarness) send(topic, payload string) {
	h.Helper()
	h.publish(mqtt.Message{Topic: topic, Payload: []byte(payload)})
}

// readings returns the recorded readings as text, INPUT=VALUE, in order.
func (h *formatsHarness) readings() string {
	h.Helper()
	pass(ringWriteInterval)
	var all []string
	for _, r := range come(h.T, h.source.recorder.newReadingFeed(nil)) {
		text := r.Text
		if text == "" {
			text = fmt.Sprint(r.Value)
		}
		all = append(all, r.Input+"="+text)
	}
	return strings.Join(all, " ")
}

func (h *formatsHarness) close() {
	mustClose(h.T, h.source)
	_ = h.gateway.Close()
}

// TestSparkplugNode checks the readings of a Sparkplug node, the request for its birth messages, and its death message.
func TestSparkplugNode(t *testing.T) {
	for _, rebirth := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			h := newFormatsHarness(t, data.Config{ColumnByInput: map[string]string{
				"v": `"spBv1.0/my plant/+/edge/pump" Supply Voltage`, "n": `"spBv1.0/my plant/+/edge" Load`,
				"w": `"spBv1.0/my plant/+/edge/pump" Voltage`},
				TopicSettings: []data.TopicSettings{{Topic: "spBv1.0/#", RequestsBirths: rebirth}}})
			defer h.close()
			h.gateway.Subscribe(mqtt.AtMostOnce, "spBv1.0/my plant/NCMD/edge")
			synctest.Wait()
			send := func(kind, device string, seq int, name string, alias, value uint64) {
				t.Helper()
				h.send("spBv1.0/my plant/"+kind+"/edge"+device,
					string(sparkplugMessage(seq, time.Now(), name, alias, value)))
				pass(time.Second)
			}
			send("DDATA", "/pump", 7, "", 1, 1) // sent before the birth message
			problem := `unused: Sparkplug node "my plant/edge": metric alias 1 is unknown`
			wantTroubles(t, h.source, []string{"v", "n"}, problem)
			requests := 0
			h.mu.Lock()
			for _, m := range h.received {
				if m.Topic == "spBv1.0/my plant/NCMD/edge" && strings.Contains(string(m.Payload),
					"Node Control/Rebirth") {
					requests++
				}
			}
			h.mu.Unlock()
			if want := map[bool]int{true: 1}[rebirth]; requests != want {
				t.Errorf("rebirth %t: %d requests, want %d", rebirth, requests, want)
			}
			send("NBIRTH", "", 0, "Load", 5, 50)
			wantTroubles(t, h.source, []string{"v", "n"})
			send("DBIRTH", "/pump", 1, "Supply Voltage", 1, 230)
			send("DBIRTH", "/other", 2, "Supply Voltage", 2, 99)
			send("DDATA", "/pump", 3, "", 1, 231)
			send("DDATA", "/other", 4, "", 2, 98)
			send("DDEATH", "/pump", 5, "", 1, 0)
			wantTroubles(t, h.source, []string{"v", "n"},
				`silent: input "v": the device has been offline since 2000-01-01T`)
			send("DBIRTH", "/pump", 6, "Supply Voltage", 1, 232)
			wantTroubles(t, h.source, []string{"v", "n"})
			send("NDEATH", "", 6, "", 9, 0)
			wantTroubles(t, h.source, []string{"v", "n"}, `silent: input "v": the device has been offline`,
				`silent: input "n": the device has been offline`)
			for _, c := range h.source.recorder.stats.columnReports() {
				if missing, want := c.LastUnusedValue(grid.ReasonMissing).Problem,
					`the payload has the names "Supply Voltage"`; c.Name ==
					"w" && (c.Unused[grid.ReasonMissing] != 2 || !strings.HasSuffix(missing, want)) {
					t.Errorf("a name that no birth of the device contains: %+v, want %s", c, want)
				}
			}
			want := "n=50 v=230 v=231 v=unavailable w=unavailable v=232 n=unavailable v=unavailable w=unavailable"
			if got := h.readings(); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		})
	}
}

// TestManySparkplugNodes checks that the number of reported nodes is limited, and that a birth message ends the report
// of a node.
func TestManySparkplugNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFormatsHarness(t, data.Config{ColumnByInput: map[string]string{"v": "spBv1.0/# Load"}})
		defer h.close()
		for i := range 2 * maxNodeTroubles {
			h.send(fmt.Sprintf("spBv1.0/g/NDATA/n%d", i), string(sparkplugMessage(0, time.Now(), "", 1, 1)))
		}
		if n := len(h.source.recorder.stats.currentTroubles(nil)); n != maxNodeTroubles {
			t.Errorf("%d troubles, want %d", n, maxNodeTroubles)
		}
		h.send("spBv1.0/g/NBIRTH/n0", string(sparkplugMessage(0, time.Now(), "Load", 1, 1)))
		if n := len(h.source.recorder.stats.currentTroubles(nil)); n != maxNodeTroubles-1 {
			t.Errorf("%d troubles after a birth, want %d", n, maxNodeTroubles-1)
		}
	})
}

// TestRenamedField checks that an input is reported if messages no longer contain its value, and that the report ends
// with the next value.
func TestRenamedField(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFormatsHarness(t, data.Config{ColumnByInput: map[string]string{"t": "site/air temperature",
			"p": "telegraf/a pressure"}, TopicSettings: []data.TopicSettings{{Topic: "telegraf/a", Format: "influx"}}})
		defer h.close()
		publish := func(json, line string) {
			for range 2 * silentAfter / time.Minute {
				h.send("site/air", json)
				h.send("telegraf/a", line)
				pass(time.Minute)
			}
		}
		publish(`{"temperature":20}`, "air pressure=1")
		wantTroubles(t, h.source, []string{"t", "p"})
		publish(`{"temp":20}`, "air press=1,hum=2")
		wantTroubles(t, h.source, []string{"t", "p"},
			`silent: input "t": no readings received from topic site/air since `+
				`2000-01-01T00:19:00Z; last missing value: site/air: the value is absent, null or empty`,
			`silent: input "p": no readings received from topic telegraf/a since 2000-01-01T00:19:00Z; last missing value: `+
				`telegraf/a: no value with this name and these conditions; the payload has the names "press", "hum"`)
		h.send("site/air", `{"temperature":20}`)
		h.send("telegraf/a", "air pressure=1")
		wantTroubles(t, h.source, []string{"t", "p"})
	})
}

// TestTopicLevels checks columns that define one input for each device under a wildcard, and messages about the
// availability of these devices.
func TestTopicLevels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		retained := []mqtt.Message{
			{Topic: "zigbee2mqtt/Living Room/availability", Payload: []byte(`{"state":"offline"}`)},
			// This message is rejected, because the age of a retained message without a time is unknown.
			{Topic: "zigbee2mqtt/Living Room", Payload: []byte(`{"temperature":20}`)},
			{Topic: "site/e/x/f", Payload: []byte(`{"v":3}`)}, // rejected for the same reason
			{Topic: "site/a/x/b", Payload: fmt.Appendf(nil, `{"v":2,"t":%d}`, time.Now().Unix())},
		}
		h := newFormatsHarness(t, data.Config{ColumnByInput: map[string]string{"temp_{1}": "zigbee2mqtt/+ temperature",
			"{2}.{1}": "site/+/x/+ v"},
			TopicSettings: []data.TopicSettings{{Topic: "zigbee2mqtt/+", Availability: "zigbee2mqtt/{1}/availability"},
				{Topic: "site/#", TimePath: "t", TimeIsOptional: true}}}, retained...)
		defer h.close()
		inputs := []string{"temp_Living_Room", "temp_K_che"}
		wantTroubles(t, h.source, inputs, `silent: input "temp_Living_Room": the device has been offline since`)
		h.send("zigbee2mqtt/Küche", `{"temperature":21}`)
		h.send("zigbee2mqtt/Living Room/availability", `{"state":"online"}`)
		wantTroubles(t, h.source, inputs)
		h.send("site/a/x/b", `{"v":1}`)
		h.send("site/c/x/d", `{"v":`)
		want := "b.a=2 temp_Living_Room=unavailable temp_K_che=21 b.a=1"
		if got := h.readings(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		for _, c := range h.source.recorder.stats.columnReports() {
			if wantMalformed := c.Name == "d.c"; c.Unused[grid.ReasonMalformed] > 0 != wantMalformed {
				t.Errorf("%+v", c)
			}
		}
	})
}

// TestTopicSettingsErrors checks that the error for each invalid entry of data.topics describes the fault.
func TestTopicSettingsErrors(t *testing.T) {
	type settings = data.TopicSettings
	for _, tt := range []struct {
		name, column string
		topics       []settings
		want         string
	}{
		{"a", "x/y v", []settings{{Topic: "x/y", Format: "xml"}},
			`unknown format "xml" in topics; want one of plain, json`},
		{"a", "x/y v", []settings{{Topic: "x/z", Format: "json"}}, `topics: "x/z" matches no topic of data.columns`},
		{"a", "x/y v", []settings{{Format: "json"}}, `topics: mqtt: filter "": is empty`},
		{"a", "x/y v", []settings{{Topic: "x/#"}, {Topic: "+/y"}}, `the entries "x/#" and "+/y" of topics both match`},
		{"a", "x/y v", []settings{{Topic: "x/y"}, {Topic: "x/y"}}, `the entries "x/y" and "x/y" of topics both match`},
		{"a", "x/y v", []settings{{Topic: "x/y", RequestsBirths: true}},
			"rebirth in topics requires the format sparkplug"},
		{"a", "x/y v", []settings{{Topic: "x/y", TimeIsOptional: true}}, "time_optional in topics requires the path"},
		{"a", "x/y v", []settings{{Topic: "x/y", Format: "influx", TimePath: "t"}},
			"the format influx defines the position"},
		{"a", "x/y v", []settings{{Topic: "x/y", TimePath: "t", TimeFormat: "iso"}}, `unknown time format "iso"`},
		{"a", "x/y v", []settings{{Topic: "x/y", TimePath: "t", TimeZone: "Bern"}}, `unknown time zone "Bern"`},
		{"a", "x/y", []settings{{Topic: "x/y", Format: "senml"}}, "the name of the value is missing after the topic"},
		{"a", "x/y v", []settings{{Topic: "x/y", Format: "plain"}}, "the format plain has no paths"},
		{"a", "x/y v", []settings{{Topic: "x/y", Availability: "x/{1}"}},
			`the entry "x/y" of topics has too few wildcards`},
		{"a_{1}", "x/+ v", []settings{{Topic: "x/+", Availability: "x/lwt"}}, "in availability must contain {1}"},
		{"a_{1}", "x/y v", nil, "the name of the input may contain {1} to {0}"},
		{"a_{2}", "x/+ v", nil, "the name of the input may contain {1} to {1}, because its topic has 1 wildcards +"},
		{"a", "spBv1.0/my plant/+/edge v", nil, `topic "spBv1.0/my" is not a Sparkplug topic`},
	} {
		c := data.Config{Source: data.SourceMQTT, ColumnByInput: map[string]string{tt.name: tt.column},
			TopicSettings: tt.topics}
		var problems spec.ProblemList
		CheckConfig(&c, &problems, "data")
		if err := problems.Err(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s %+v: %v, want %s", tt.column, tt.topics, err, tt.want)
		}
	}
	for _, kind := range []data.SourceKind{data.SourceCSV, data.SourceLines} {
		c := data.Config{Source: kind, CSVPath: "a.csv",
			LinesPath:     map[bool]string{true: "-"}[kind == data.SourceLines],
			TopicSettings: []settings{{Topic: "a"}}}
		var problems spec.ProblemList
		CheckConfig(&c, &problems, "data")
		if err := problems.Err(); err == nil || !strings.Contains(err.Error(),
			"the key topics is only valid with source mqtt: remove this key") {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// TestUnquotedTopicWithSpaces checks that a column whose topic probably contains spaces is reported, and that the
// suggested remedy works.
func TestUnquotedTopicWithSpaces(t *testing.T) {
	check := func(column string) error {
		c := data.Config{Source: data.SourceMQTT, ColumnByInput: map[string]string{"a": column}}
		var problems spec.ProblemList
		CheckConfigAgainstFile(&c, &problems, "data")
		return problems.Err()
	}
	err := check("zigbee2mqtt/Living Room temperature")
	for _, remedy := range []string{`"zigbee2mqtt/Living Room" temperature`, `"zigbee2mqtt/Living" Room temperature`} {
		if err == nil || !strings.Contains(err.Error(), "'"+remedy+"'") {
			t.Errorf("%v, want %s", err, remedy)
		}
		if err := check(remedy); err != nil {
			t.Errorf("%s: %v", remedy, err)
		}
	}
	if err := check("spBv1.0/g/+/n Supply Voltage/L1"); err != nil {
		t.Errorf("a Sparkplug metric with a space: %v", err)
	}
}
