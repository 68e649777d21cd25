package announce_test

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/internal/agentd/announce"
	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/modelfile"
	"github.com/fedmesh/fedmesh/mqtt"
)

// homeAssistantSchema is the content of testdata/homeassistant.json.
type homeAssistantSchema struct {
	Required, Keys      map[string][]string
	StateClasses        []string            `json:"state_classes"`
	EntityCategories    []string            `json:"entity_categories"`
	SensorUnits         map[string][]string `json:"sensor_units"`
	BinarySensorClasses []string            `json:"binary_sensor_classes"`
}

func readHomeAssistantSchema(t *testing.T) (s homeAssistantSchema) {
	t.Helper()
	text, err := os.ReadFile("testdata/homeassistant.json")
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// discoveryTopic is the documented format of the topic of a discovery message for a device.
var discoveryTopic = regexp.MustCompile(`^homeassistant/device/([a-zA-Z0-9_-]+/)?[a-zA-Z0-9_-]+/config$`)

// problems returns the rules that a discovery message violates.
func (s *homeAssistantSchema) problems(m mqtt.Message) (all []string) {
	if !discoveryTopic.MatchString(m.Topic) || !m.Retained {
		all = append(all, "topic "+m.Topic)
	}
	var message map[string]any
	if err := json.Unmarshal(m.Payload, &message); err != nil {
		return append(all, err.Error())
	}
	keys := func(kind string, object any) {
		o, _ := object.(map[string]any)
		for key := range o {
			if !slices.Contains(s.Keys[kind], key) {
				all = append(all, kind+" has key "+key)
			}
		}
		required := kind
		if strings.HasSuffix(kind, "sensor") {
			required = "entity"
		}
		for _, key := range s.Required[required] {
			if o[key] == nil {
				all = append(all, kind+" lacks key "+key)
			}
		}
	}
	keys("message", message)
	keys("device", message["device"])
	keys("origin", message["origin"])
	components, _ := message["components"].(map[string]any)
	for name, c := range components {
		e, _ := c.(map[string]any)
		text := func(key string) string { value, _ := e[key].(string); return value }
		keys(text("platform"), c)
		if text("state_topic") == "" && message["state_topic"] == nil {
			all = append(all, name+" lacks state_topic")
		}
		class, unit := text("device_class"), text("unit_of_measurement")
		switch {
		case class == "":
		case text("platform") == "sensor" && !slices.Contains(s.SensorUnits[class], unit),
			text("platform") == "binary_sensor" && !slices.Contains(s.BinarySensorClasses, class):
			all = append(all, name+" has device class "+class+" with unit "+unit)
		}
		if c := text("state_class"); c != "" && !slices.Contains(s.StateClasses, c) {
			all = append(all, name+" has state class "+c)
		}
		if c := text("entity_category"); c != "" && !slices.Contains(s.EntityCategories, c) {
			all = append(all, name+" has category "+c)
		}
		id := text("default_entity_id")
		if id != "" && !regexp.MustCompile(`^`+text("platform")+`\.[a-z0-9_]+$`).MatchString(id) {
			all = append(all, name+" has entity id "+id)
		}
	}
	if len(components) == 0 {
		all = append(all, "no components")
	}
	return all
}

// TestHomeAssistantSchema checks the discovery messages against the schema of Home Assistant.
func TestHomeAssistantSchema(t *testing.T) {
	s := readHomeAssistantSchema(t)
	targets := []modelfile.PredictionTarget{
		{}, {TargetColumn: "temperature in 1h", Unit: "°C", Horizon: time.Hour},
		{TargetColumn: "pm25 in 6h", Unit: "µg/m³"},
		{TargetColumn: "pm10", Unit: "log1p(μg/m³)"}, {TargetColumn: "Ä/+# \x00\xff", Unit: "bananas"},
		{TargetColumn: "humidity", Unit: "%"}, {TargetColumn: "health", Unit: "K"},
	}
	for _, units := range s.SensorUnits {
		for _, unit := range units {
			for _, name := range []string{"t", "wind", "humidity", "co2", "pm25", "pm10"} {
				targets = append(targets, modelfile.PredictionTarget{TargetColumn: name, Unit: unit})
			}
		}
	}
	for _, target := range targets {
		device := hall
		device.ID = "Hall.1"
		device1, forecasts := announce.New(settings.AnnounceHomeAssistant, device).Birth(announce.Health{}, &target)
		n := 0
		for _, m := range append(device1, forecasts...) {
			if !strings.HasPrefix(m.Topic, "homeassistant/") {
				continue
			}
			n++
			if got := s.problems(m); len(got) > 0 {
				t.Errorf("%q: %v in %s", target.TargetColumn, got, m.Payload)
			}
		}
		if n != 2 {
			t.Errorf("%q: %d discovery messages, want 2", target.TargetColumn, n)
		}
	}
}

// TestHomeAssistantSchemaRed checks that the check of discovery messages detects faults, and accepts a message like the
// example in the documentation.
func TestHomeAssistantSchemaRed(t *testing.T) {
	s := readHomeAssistantSchema(t)
	const good = `{"device":{"identifiers":["x"]},"origin":{"name":"o"},"state_topic":"s",` +
		`"components":{"c":{"platform":"sensor","device_class":"temperature","unit_of_measurement":"°C",` +
		`"value_template":"{{ value_json.temperature}}","unique_id":"u"}}}`
	topic := "homeassistant/device/x/config"
	for _, c := range []struct{ topic, old, new, want string }{
		{topic, "", "", ""},
		{"homeassistant/sensor/x y/config", "", "", "topic homeassistant/sensor/x y/config"},
		{topic, `"origin":{"name":"o"},`, ``, "message lacks key origin"},
		{topic, `"name":"o"`, `"nick":"o"`, "origin has key nick"},
		{topic, `,"unique_id":"u"`, ``, "sensor lacks key unique_id"},
		{topic, `"state_topic":"s",`, ``, "c lacks state_topic"},
		{topic, `"°C"`, `"%"`, "c has device class temperature with unit %"},
		{topic, `"unique_id"`, `"state_class":"guess","unique_id"`, "c has state class guess"},
		{topic, `"unique_id"`, `"default_entity_id":"sensor.Ä","unique_id"`, "c has entity id sensor.Ä"},
	} {
		got := s.problems(mqtt.Message{Topic: c.topic, Retained: true,
			Payload: []byte(strings.Replace(good, c.old, c.new, 1))})
		if c.want == "" && len(got) > 0 || c.want != "" && !slices.Contains(got, c.want) {
			t.Errorf("%s: %v, want %q", c.new, got, c.want)
		}
	}
}

// TestHomeAssistantClasses checks that each device class allows its units, and which targets get a device class.
func TestHomeAssistantClasses(t *testing.T) {
	for target, want := range map[modelfile.PredictionTarget]string{
		{TargetColumn: "t", Unit: "°C"}: "temperature", {TargetColumn: "t", Unit: "log1p(°C)"}: "",
		{TargetColumn: "PM25 in 1h", Unit: "\u00b5g/m³"}: "pm25", {TargetColumn: "soot", Unit: "μg/m³"}: "",
		{TargetColumn: "relative humidity", Unit: "%"}: "humidity", {TargetColumn: "load", Unit: "%"}: "",
		{TargetColumn: "t"}: "",
	} {
		_, forecasts := announce.New(settings.AnnounceHomeAssistant, hall).Birth(announce.Health{}, &target)
		var message struct {
			Components map[string]struct {
				DeviceClass string `json:"device_class"`
				StateClass  string `json:"state_class"`
			}
		}
		if err := json.Unmarshal(forecasts[0].Payload, &message); err != nil {
			t.Fatal(err)
		}
		c := message.Components
		if c["forecast"].DeviceClass != want || c["forecast"].StateClass != "" || c["residual"].DeviceClass != "" {
			t.Errorf("%+v: %+v, want %q", target, c, want)
		}
	}
}

// TestHomeAssistantState checks the published states of the entities that show a forecast.
func TestHomeAssistantState(t *testing.T) {
	s := newSite(t)
	p := s.start(t.TempDir(), settings.AnnounceHomeAssistant)
	const state, health = "site/hall/forecast/hall-1/state", "site/hall/forecast/hall-1/health"
	first := forecast(indoor, 0)
	first.Residual = nil
	publish(t, p, first)
	want(t, s.retained[state], `{"forecast":21.8,"for":"2026-03-01T13:00:00Z","model":"7/42","residual":null,`+
		`"anomaly":null}`)
	old := forecast(indoor, 2) // has a new residual, but no newer prediction
	old.Value = 3
	publish(t, p, old)
	want(t, s.retained[state], `{"forecast":21.8,"for":"2026-03-01T13:00:00Z","model":"7/42","residual":0.5,`+
		`"anomaly":"ON","score":1.5}`)
	want(t, s.retained[health], `{"problem":"OFF","problems":[]}`)
	p.SetHealth(announce.Health{Problems: []string{"the disk is full"}})
	want(t, s.retained[health], `{"problem":"ON","problems":["the disk is full"]}`)
	p.SetHealth(announce.Health{})
	want(t, s.retained[health], `{"problem":"OFF","problems":[]}`)
}

func want(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}
