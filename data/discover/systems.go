package discover

import (
	"bytes"
	"regexp"
	"slices"
	"strings"

	"github.com/fedmesh/fedmesh/data/payload"
	"github.com/fedmesh/fedmesh/mqtt"
)

// topicSettings are settings of data.topics that a system needs.
type topicSettings struct {
	filter     string // topic filter of the settings; empty for the topic of the series
	format     string
	time       string
	timeFormat string
	optional   bool // whether a payload without a time is valid
	rebirth    bool
}

// system is a kind of publisher, such as Tasmota, with the form of its topics and payloads.
type system struct {
	name    string
	filters []string // topic filters; a topic must match any one of them
	// isPayload reports whether a payload has the form of the system. If it is nil, the topic suffices.
	isPayload   func(m payload.Message) bool
	format      string // format of the payloads
	deviceLevel int    // level of the topic that names the device, from 0; negative counts from the end
	// values matches the columns that contain readings. name, the first group, is the name of the quantity. If it is
	// nil, all values are readings.
	values *regexp.Regexp
	// quantityLevel is used if the topic names the quantity and the payload contains only its value, in the member
	// "value". It is the first level of the quantity's name in the topic. If it is 0, the payload names the quantity.
	quantityLevel int
	settings      topicSettings
	// topicOf returns the topic of the column that selects a reading. If topicOf is nil, the column has the topic of
	// the message.
	topicOf func(messageTopic, readingTopic string) string
}

// tasmotaLayout is the layout of the times of Tasmota, which have no zone. Messages of Zigbee devices have no time.
const tasmotaLayout = "2006-01-02T15:04:05"

// systems contains the known systems, in the order in which they are tried.
var systems = []system{
	{name: "Sparkplug B", filters: []string{"spBv1.0/+/+/+/#"}, format: payload.FormatSparkplug, deviceLevel: -1,
		topicOf: sparkplugTopic, settings: topicSettings{filter: "spBv1.0/#", rebirth: true}},
	{name: "Tasmota", filters: []string{"tele/+/SENSOR"}, format: payload.FormatJSON, deviceLevel: 1,
		settings: topicSettings{filter: "tele/+/SENSOR", time: "Time", timeFormat: tasmotaLayout, optional: true}},
	{name: "Tasmota", filters: []string{"+/tele/SENSOR"}, format: payload.FormatJSON,
		settings: topicSettings{filter: "+/tele/SENSOR", time: "Time", timeFormat: tasmotaLayout, optional: true}},
	{name: "Shelly", filters: []string{"+/events/rpc"}, isPayload: contains(`"src"`), format: payload.FormatJSON,
		values: regexp.MustCompile(`^params\.(\w+:\d+\..+)$`), settings: topicSettings{filter: "+/events/rpc",
			time: "params.ts"}},
	{name: "Shelly", filters: []string{"+/status/+"}, isPayload: isJSONObject, format: payload.FormatJSON},
	{name: "ESPHome", filters: []string{"+/sensor/+/state", "+/binary_sensor/+/state"}, format: payload.FormatPlain},
	{name: "The Things Network", filters: []string{"v3/+/devices/+/up"}, format: payload.FormatJSON, deviceLevel: 3,
		values:   regexp.MustCompile(`^uplink_message\.decoded_payload\.(.+)$`),
		settings: topicSettings{filter: "v3/+/devices/+/up", time: "received_at"}},
	{name: "ChirpStack", filters: []string{"application/+/device/+/event/up"}, format: payload.FormatJSON,
		deviceLevel: 3, values: regexp.MustCompile(`^object\.(.+)$`),
		settings: topicSettings{filter: "application/+/device/+/event/up", time: "time"}},
	{name: "thin-edge.io", filters: []string{"te/+/+/+/+/m/+"}, format: payload.FormatJSON, deviceLevel: 2,
		settings: topicSettings{filter: "te/+/+/+/+/m/+", time: "time", optional: true}},
	{name: "EdgeX", filters: []string{"edgex/events/#"}, format: payload.FormatJSON, deviceLevel: -1,
		values: regexp.MustCompile(`^event\.readings\[resourceName=(.+)\]\.value$`),
		settings: topicSettings{filter: "edgex/events/#", time: "event.readings.*.origin",
			timeFormat: "unix_ns"}},
	{name: "OPC UA PubSub", filters: []string{"#"}, isPayload: contains(`"DataSetWriterId"`),
		format: payload.FormatOPCUA, settings: topicSettings{format: payload.FormatOPCUA}},
	{name: "Azure IoT Operations", filters: []string{"azure-iot-operations/data/+"}, format: payload.FormatJSON,
		deviceLevel: 2, values: regexp.MustCompile(`^(.+)\.Value$`),
		settings: topicSettings{filter: "azure-iot-operations/data/+", time: "*.SourceTimestamp"}},
	{name: "SenML", filters: []string{"#"}, isPayload: isSenML, format: payload.FormatSenML,
		settings: topicSettings{format: payload.FormatSenML}},
	{name: "Telegraf", filters: []string{"#"}, isPayload: isLineProtocol, format: payload.FormatInflux,
		deviceLevel: 1, settings: topicSettings{format: payload.FormatInflux}},
	{name: "Victron Venus OS", filters: []string{"N/+/+/+/#"}, isPayload: contains(`"value"`),
		format: payload.FormatJSON, deviceLevel: 2, quantityLevel: 3},
	{name: "Z-Wave JS UI", filters: []string{"zwave/+/+/#"}, isPayload: contains(`"value"`),
		format: payload.FormatJSON, deviceLevel: 1, quantityLevel: 2,
		settings: topicSettings{filter: "zwave/#", time: "time", timeFormat: "unix_ms", optional: true}},
	{name: "Home Assistant", filters: []string{"homeassistant/+/+/state"}, format: payload.FormatPlain, deviceLevel: 2},
	{name: "Zigbee2MQTT", filters: []string{"zigbee2mqtt/#"}, isPayload: isJSONObject, format: payload.FormatJSON,
		deviceLevel: -1},
	{name: "Zigbee2MQTT", filters: []string{"+/#"}, isPayload: contains(`"linkquality"`), format: payload.FormatJSON,
		deviceLevel: -1},
	{name: "JSON", filters: []string{"#"}, isPayload: isJSONObject, format: payload.FormatJSON, deviceLevel: -1},
	{name: "number", filters: []string{"#"}, isPayload: isPlainNumber, format: payload.FormatPlain, deviceLevel: -2},
}

// recognise returns the system that published a message, or nil.
func recognise(m payload.Message) *system {
	for i := range systems {
		if s := &systems[i]; matchesAny(s.filters, m.Topic) && (s.isPayload == nil || s.isPayload(m)) {
			return s
		}
	}
	return nil
}

// matchesAny reports whether any of the filters matches a topic.
func matchesAny(filters []string, topic string) bool {
	return slices.ContainsFunc(filters, func(f string) bool { return mqtt.FilterMatchesTopic(f, topic) })
}

func contains(text string) func(payload.Message) bool {
	return func(m payload.Message) bool { return bytes.Contains(m.Payload, []byte(text)) }
}

func isJSONObject(m payload.Message) bool {
	return bytes.HasPrefix(bytes.TrimSpace(m.Payload), []byte("{"))
}

func isPlainNumber(m payload.Message) bool {
	_, _, state := numberOf(strings.TrimSpace(string(m.Payload)))
	return state == isNumber
}

// isSenML reports whether a payload is a list of SenML records (RFC 8428).
func isSenML(m payload.Message) bool {
	list, err := payload.ParseJSON(m.Payload)
	records, isList := list.([]any)
	if err != nil || !isList || len(records) == 0 {
		return false
	}
	first, _ := records[0].(map[string]any)
	for _, name := range []string{"n", "bn", "bt", "bu", "bv", "bver"} {
		if _, ok := first[name]; ok {
			return true
		}
	}
	return false
}

// isLineProtocol reports whether a payload is in InfluxDB line protocol.
func isLineProtocol(m payload.Message) bool {
	if isJSONObject(m) || !bytes.ContainsRune(m.Payload, '=') || !bytes.ContainsRune(m.Payload, ' ') {
		return false
	}
	content, err := payload.NewDecoder(payload.FormatInflux, payload.Options{}).Decode(m)
	return err == nil && len(content.Values()) > 0
}

// sparkplugTopic returns the filter that receives the births and the data of a device.
func sparkplugTopic(messageTopic, readingTopic string) string {
	topic := messageTopic
	if readingTopic != "" {
		topic = readingTopic
	}
	levels := strings.Split(topic, "/")
	if len(levels) > 3 {
		levels[2] = "+"
	}
	return strings.Join(levels, "/")
}

// device returns the name of the device that published a topic.
func (s *system) device(levels []string) string {
	i := s.deviceLevel
	if i < 0 {
		i += len(levels)
	}
	return levels[min(max(i, 0), len(levels)-1)]
}

// notReadings matches columns that contain a time, a number of a message or a number of a component.
var notReadings = regexp.MustCompile(
	`(?i)(^|[._])(time|timestamp|ts|seq|sequence(_?number)?|last_seen|received_at|date|id)$`)

// quantity returns the name of a value. isReading is false if the value is no reading.
func (s *system) quantity(levels []string, v payload.Value) (name string, isReading bool) {
	switch {
	case s.format == payload.FormatPlain && s.deviceLevel >= 0 && len(levels) > 2:
		return levels[len(levels)-2], true
	case s.format == payload.FormatPlain:
		return levels[len(levels)-1], true
	case s.quantityLevel > 0:
		return strings.Join(levels[s.quantityLevel:], "/"), v.Column == "value"
	case s.values != nil:
		m := s.values.FindStringSubmatch(v.Column)
		if m == nil {
			return "", false
		}
		return m[1], true
	case v.Path == nil:
		return v.Reading.Name, v.Reading.Name != ""
	}
	return v.Column, v.Column != "" && !notReadings.MatchString(v.Column)
}

// columnTopic returns the topic of the column that selects a value.
func (s *system) columnTopic(messageTopic, readingTopic string) string {
	if s.topicOf == nil {
		return messageTopic
	}
	return s.topicOf(messageTopic, readingTopic)
}
