package discover

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/data/payload"
	"github.com/fedmesh/fedmesh/mqtt"
)

// devices is the folder with messages of real devices; its SOURCE.md names their sources.
const devices = "../sources/testdata/devices"

// deviceMessages contains messages of real devices, each with the series that a survey must find, written as SYSTEM
// DEVICE QUANTITY=VALUE.
var deviceMessages = []struct {
	file, topic string
	want        []string
}{
	{"01-zigbee2mqtt.json", "zigbee2mqtt/Living Room", []string{"Zigbee2MQTT|Living Room|temperature=27.34"}},
	{"02-tasmota-energy.json", "tele/pow1/SENSOR", []string{"Tasmota|pow1|ENERGY.Power=2635",
		"Tasmota|pow1|ENERGY.Factor=0.99"}},
	{"02-tasmota-energy.json", "pow2/tele/SENSOR", []string{"Tasmota|pow2|ENERGY.Power=2635"}},
	{"02b-tasmota-ds18x20.json", "tele/x/SENSOR", []string{"Tasmota|x|[Id=0000059352D4].Temperature=1.2"}},
	{"03-shelly-notifystatus.json", "shelly1pmminig3-5432044edbc0/events/rpc",
		[]string{"Shelly|shelly1pmminig3-5432044edbc0|switch:0.apower=11.5"}},
	{"03b-shelly-status-switch.json", "shelly1/status/switch:0", []string{"Shelly|shelly1|apower=11.5"}},
	{"03c-shelly-ht-temperature.json", "shellyht-livingroom/status/temperature:0",
		[]string{"Shelly|shellyht-livingroom|tC=20.1"}},
	{"04-esphome-state.txt", "node/sensor/id/state", []string{"ESPHome|node|id=21.3"}},
	{"04b-esphome-availability.txt", "node/status", nil},
	{"06-ttn-uplink.json", "v3/app1@tenant1/devices/dev1/up", []string{"The Things Network|dev1|temperature="}},
	{"07-chirpstack-up.json", "application/17c8/device/0101010101010101/event/up", nil},
	{"08b-azure-iot-operations.json", "azure-iot-operations/data/thermostat",
		[]string{"Azure IoT Operations|thermostat|"}},
	{"10-thin-edge-with-time.json", "te/device/main///m/env_sensor", []string{"thin-edge.io|main|temperature="}},
	{"11-edgex-event.json", "edgex/events/device/x/y/z", []string{"EdgeX|z|"}},
	{"12-telegraf-influx-line.txt", "telegraf/host/modbus", []string{"Telegraf|host|"}},
	{"09-senml-rfc8428.json", "site/senml", []string{"SenML|site|"}},
	{"08-opcua-pubsub.json", "plant/opcua", []string{"OPC UA PubSub|plant|"}},
	{"05d-sparkplug-ddata.bin", "spBv1.0/Sparkplug B Devices/DDATA/Raspberry Pi/Pibrella",
		[]string{"Sparkplug B|Pibrella|"}},
	{"30-victron.json", "N/portal/pvinverter/20/Ac/Power",
		[]string{"Victron Venus OS|pvinverter|20/Ac/Power=936"}},
	{"31-tasmota-zigbee.json", "tele/zigbee/SENSOR", []string{"Tasmota|zigbee|ZbReceived.IKEA_Light.Dimmer=102"}},
	{"33-zwave-js-ui.json", "zwave/dimmer/switch_multilevel/endpoint_0/currentValue",
		[]string{"Z-Wave JS UI|dimmer|switch_multilevel/endpoint_0/currentValue=10"}},
	{"13-homeassistant-unavailable.txt", "homeassistant/sensor/x/state", nil},
}

// arrival is the time at which the first message of a test arrives.
var arrival = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func read(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(devices, file))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func seriesTexts(s *Survey) (all []string) {
	for _, x := range s.Series() {
		all = append(all, fmt.Sprintf("%s|%s|%s=%v", x.System, x.Device, x.Quantity, x.Last))
	}
	return all
}

// TestDevices checks that the survey recognises messages of real devices. For each value, package payload must select
// the same number with the column that the survey proposes.
func TestDevices(t *testing.T) {
	for _, m := range deviceMessages {
		t.Run(m.topic, func(t *testing.T) {
			s := New()
			message := payload.Message{Topic: m.topic, Payload: read(t, m.file), ReceivedAt: arrival}
			s.Add(message)
			got := seriesTexts(s)
			if m.want == nil && len(got) > 0 {
				t.Errorf("found %q, want nothing", got)
			}
			for _, want := range m.want {
				if !slices.ContainsFunc(got, func(text string) bool { return strings.HasPrefix(text, want) }) {
					t.Errorf("found %q, want %s", got, want)
				}
			}
			for _, x := range s.Series() {
				checkColumn(t, x, recognise(message).format, message)
				topic := strings.ReplaceAll(x.Topic, "+", "x")
				if f := x.settings.filter; f != "" && !mqtt.FilterMatchesTopic(f, topic) {
					t.Errorf("the settings of %s do not apply to %s", f, x.Topic)
				}
			}
		})
	}
}

// checkColumn checks that the column of a series selects its last number.
func checkColumn(t *testing.T, x *Series, format string, m payload.Message) {
	t.Helper()
	column, err := payload.ParseColumn(format, x.Column)
	if err != nil {
		t.Fatalf("%s: %v", x.Column, err)
	}
	content, err := payload.NewDecoder(format, payload.Options{}).Decode(m)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range content.Select(&column) {
		if number, _, state := numberOf(r.Value); state == isNumber && number == x.Last {
			return
		}
	}
	t.Errorf("the column %q of %s does not select %v", x.Column, m.Topic, x.Last)
}

// TestSecrets checks that the summary contains no texts, no positions and no numbers whose names suggest a secret.
func TestSecrets(t *testing.T) {
	s := New()
	s.Add(payload.Message{Topic: "a/b", ReceivedAt: arrival, Payload: []byte(`{"password":1234,"wifi_psk":99887766,` +
		`"pin":4711,"gps":{"latitude":50.1},"note":"hunter2","bypass":21.5,"api_key":5}`)})
	s.Add(payload.Message{Topic: "N/portal/gps/0/Position/Latitude", ReceivedAt: arrival,
		Payload: []byte(`{"value":52.75}`)})
	if got := fmt.Sprint(seriesTexts(s)); got != "[JSON|b|bypass=21.5]" || s.Hidden() != 6 {
		t.Errorf("found %s, and hid %d values", got, s.Hidden())
	}
	p := Propose(s.Series(), "tcp://localhost")
	for _, secret := range []string{"1234", "99887766", "4711", "50.1", "52.75", "hunter2"} {
		if strings.Contains(p.Agent+p.Coordinator, secret) {
			t.Errorf("the proposal contains %s:\n%s%s", secret, p.Agent, p.Coordinator)
		}
	}
}

// TestLateRecognition checks that a topic whose first message does not reveal the system is recognised by a later
// message.
func TestLateRecognition(t *testing.T) {
	s := New()
	for _, text := range []string{"", "unavailable", "21.5", "unavailable"} {
		s.Add(payload.Message{Topic: "site/hall/temperature", Payload: []byte(text), ReceivedAt: arrival})
	}
	if got := fmt.Sprint(seriesTexts(s)); got != "[number|hall|temperature=21.5]" || s.Series()[0].Missing != 1 {
		t.Errorf("found %s", got)
	}
}

// TestAnnouncement checks that the units and names of Home Assistant's discovery messages are used.
func TestAnnouncement(t *testing.T) {
	s := New()
	s.Add(payload.Message{Topic: "homeassistant/sensor/a/config", IsRetained: true, Payload: []byte(`{"~":"z/hall",` +
		`"stat_t":"~","val_tpl":"{{ value_json['temperature'] | round(1) }}","unit_of_meas":"°C","name":"Temperature",` +
		`"dev":{"name":"Hall sensor"}}`)})
	s.Add(payload.Message{Topic: "z/hall", Payload: []byte(`{"temperature":21,"linkquality":7}`), ReceivedAt: arrival})
	x := s.Series()
	if len(x) != 2 || x[0].Device != "Hall sensor" || x[0].Quantity != "Temperature" || x[0].Unit != "°C" {
		t.Errorf("%q", seriesTexts(s))
	}
	for _, text := range []string{"", "null", `{"name":null}`, `{"stat_t":7}`, `{"stat_t":"a","val_tpl":"{{ x() }}"}`} {
		s.Add(payload.Message{Topic: "homeassistant/sensor/b/config", Payload: []byte(text)})
	}
	if n := len(s.announced); n != 1 {
		t.Errorf("%d announced values", n)
	}
}

// TestStatistics checks the interval, missing values, retained messages and frozen values of a series.
func TestStatistics(t *testing.T) {
	s := New()
	add := func(topic, text string, at int, retained bool) {
		s.Add(payload.Message{Topic: topic, Payload: []byte(text), IsRetained: retained,
			ReceivedAt: arrival.Add(time.Duration(at) * time.Second)})
	}
	add("a/t", `{"x":5}`, 0, true)
	for i := range 40 {
		add("a/t", fmt.Sprintf(`{"x":%d,"y":null,"z":3}`, i), 10*i, false)
	}
	add("a/t", `{"x":null}`, 500, false)
	add("a/t", `{"x":`, 510, false)
	x := s.Series()[0]
	if x.Count != 41 || x.Live != 40 || x.Missing != 1 || x.Min != 0 || x.Max != 39 || x.Interval() != 10*time.Second ||
		len(x.Recent) != 32 || x.Recent[0] != 8 || x.Recent[31] != 39 || x.IsFrozen() {
		t.Errorf("%+v, interval %v", x, x.Interval())
	}
	if z := s.Series()[1]; !z.IsFrozen() {
		t.Errorf("%+v is not frozen", z)
	}
	if s.Rejections()["JSON"] != 1 {
		t.Errorf("rejections %v", s.Rejections())
	}
}

// TestBounds checks that the memory of a survey is bounded if it receives more topics than its limit.
func TestBounds(t *testing.T) {
	before := heap()
	s := New()
	for i := range 3 * MaxTopics {
		s.Add(payload.Message{Topic: fmt.Sprintf("site/%d/t", i), ReceivedAt: arrival,
			Payload: []byte(`{"a":1,"b":2,"c":3}`)})
	}
	if s.Topics() != MaxTopics || len(s.Series()) != MaxSeries || s.Skipped < 2*MaxTopics {
		t.Errorf("%d topics, %d series, %d skipped", s.Topics(), len(s.Series()), s.Skipped)
	}
	if used := heap() - before; used > 32<<20 {
		t.Errorf("%d MiB of memory", used>>20)
	}
	runtime.KeepAlive(s)
}

// TestLongNames checks that the memory of a survey is bounded for long topics, columns and announced names.
func TestLongNames(t *testing.T) {
	long := strings.Repeat("x", 60_000)
	for name, message := range map[string]func(i int) (topic, text string){
		"topic":  func(i int) (string, string) { return fmt.Sprint(i, long), "1" },
		"column": func(i int) (string, string) { return "site/air", fmt.Sprintf(`{"%d%s":1}`, i, long) },
		"secret": func(i int) (string, string) { return "site/air", fmt.Sprintf(`{"password%d%s":1}`, i, long) },
		"announced topic": func(i int) (string, string) {
			return "homeassistant/sensor/a/config", fmt.Sprintf(`{"stat_t":"%d%s"}`, i, long)
		},
		"unit": func(i int) (string, string) {
			return "homeassistant/sensor/a/config", fmt.Sprintf(`{"stat_t":"%d","unit_of_meas":"%s"}`, i, long)
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := heap()
			s := New()
			for i := range 300 {
				topic, text := message(i)
				s.Add(payload.Message{Topic: topic, Payload: []byte(text), ReceivedAt: arrival})
			}
			if used := heap() - before; used > 2<<20 {
				t.Errorf("%d MiB of memory", used>>20)
			}
			runtime.KeepAlive(s)
		})
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// FuzzSurvey checks that no message crashes the survey or the proposal.
func FuzzSurvey(f *testing.F) {
	for _, m := range deviceMessages {
		text, err := os.ReadFile(filepath.Join(devices, m.file))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(m.topic, text)
	}
	f.Add("homeassistant/sensor/a/config", []byte(`{"stat_t":"a","val_tpl":"{{ value_json.a }}"}`))
	f.Fuzz(func(_ *testing.T, topic string, text []byte) {
		s := New()
		s.Add(payload.Message{Topic: topic, Payload: text, ReceivedAt: arrival})
		Propose(s.Series(), "tcp://localhost")
	})
}

// BenchmarkSurvey measures adding messages on 10,000 topics. A survey of 1,000 messages per second must need at most 30
// % of a processor core, which is 300 µs for each message.
func BenchmarkSurvey(b *testing.B) {
	s := New()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		s.Add(payload.Message{Topic: fmt.Sprintf("tele/plug%d/SENSOR", i%MaxTopics), ReceivedAt: arrival,
			Payload: []byte(`{"Time":"2026-03-01T12:00:00","ENERGY":{"Power":263,"Voltage":229}}`)})
	}
}

// TestProposal checks the sections that are proposed for a survey of two devices.
func TestProposal(t *testing.T) {
	s := New()
	s.Add(payload.Message{Topic: "homeassistant/sensor/a/config", IsRetained: true, Payload: []byte(
		`{"stat_t":"zigbee2mqtt/Living Room","val_tpl":"{{ value_json['temperature'] }}","unit_of_meas":"°C"}`)})
	for i := range 6 {
		at := arrival.Add(time.Duration(i) * 4 * time.Minute)
		s.Add(payload.Message{Topic: "tele/pump/SENSOR", ReceivedAt: at,
			Payload: fmt.Appendf(nil, `{"Time":"2026-03-01T12:05:00","ENERGY":{"Power":%d,"Voltage":229}}`, 263+i)})
		s.Add(payload.Message{Topic: "zigbee2mqtt/Living Room", ReceivedAt: at,
			Payload: fmt.Appendf(nil, `{"temperature":%d.5}`, 20+i)})
		s.Add(payload.Message{Topic: "senml", ReceivedAt: at,
			Payload: fmt.Appendf(nil, `[{"n":"level","u":"m","v":%d}]`, i)})
	}
	got := Propose(s.Series(), "tcp://gateway:1883")
	const agent = `# Delete the lines of the inputs that the model does not need.
data:
  source: mqtt
  columns:
    senml_level: senml level  # SenML, observed 0 to 5
    pump_energy_power: tele/pump/SENSOR ENERGY.Power  # Tasmota, observed 263 to 268
    pump_energy_voltage: tele/pump/SENSOR ENERGY.Voltage  # Tasmota, always 229
    living_room_temperature: '"zigbee2mqtt/Living Room" temperature'  # Zigbee2MQTT, observed 20.5 to 25.5
  topics:
    - {topic: senml, format: senml}
    - {topic: tele/+/SENSOR, time: Time, time_format: '2006-01-02T15:04:05', time_optional: true}` +
		`  # the times have no zone: add time_zone, unless they are UTC
  units:  # agentd converts these to the units of the task
    living_room_temperature: "°C"
readings:
  broker:
    url: tcp://gateway:1883
# To publish forecasts at the site's broker, remove the # of the next line.
#predict: {keep: 1, every: 1m, publish: fedmesh/forecast, broker: {url: "tcp://gateway:1883"}}
`
	const coordinator = `# Delete the lines of the inputs that the model does not need, choose the target and the features, and
# set the valid range of each input that has none.
task:
  inputs:
    - {name: senml_level, unit: "m"}  # SenML, observed 0 to 5
    - {name: pump_energy_power}  # Tasmota, observed 263 to 268
    - {name: pump_energy_voltage}  # Tasmota, always 229
    - {name: living_room_temperature, unit: "°C", range: [-60, 150]}  # Zigbee2MQTT, observed 20.5 to 25.5
  grid: {step: 10m, lateness: 10s}
  features: [senml_level, pump_energy_power, living_room_temperature]
  target: senml_level in 10m
`
	if got.Agent != agent {
		t.Errorf("agentd.yaml:\n%s\nwant\n%s", got.Agent, agent)
	}
	if got.Coordinator != coordinator {
		t.Errorf("coordinator.yaml:\n%s\nwant\n%s", got.Coordinator, coordinator)
	}
}
