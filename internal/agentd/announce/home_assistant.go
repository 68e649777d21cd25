package announce

import (
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/agent/predict"
	"github.com/fedmesh/fedmesh/modelfile"
	"github.com/fedmesh/fedmesh/mqtt"
)

// homeAssistant announces the device by MQTT discovery (https://www.home-assistant.io/integrations/mqtt/). Its
// documentation recommends one discovery message per device if the device has several entities. This announcer sends
// two messages, which name the same device: one for the health of the agent, and one for the entities of the target.
// The second message is deleted when the target changes.
type homeAssistant struct {
	plainJSON
	state      homeAssistantState
	forecastOf time.Time // time of the row whose forecast is shown
}

func newHomeAssistant(d *Device) Announcer { return &homeAssistant{plainJSON: plainJSON{d}} }

// discoveryMessage is a discovery message for a device.
type discoveryMessage struct {
	Device            discoveryDevice            `json:"device"`
	Origin            discoveryOrigin            `json:"origin"`
	AvailabilityTopic string                     `json:"availability_topic"`
	StateTopic        string                     `json:"state_topic"`
	Entities          map[string]discoveryEntity `json:"components"`
}

type discoveryDevice struct {
	Identifiers     []string `json:"identifiers"`
	Name            string   `json:"name"`
	Manufacturer    string   `json:"manufacturer"`
	Model           string   `json:"model"`
	SoftwareVersion string   `json:"sw_version,omitempty"`
}

type discoveryOrigin struct {
	Name            string `json:"name"`
	SoftwareVersion string `json:"sw_version,omitempty"`
	SupportURL      string `json:"support_url"`
}

// discoveryEntity describes an entity.
type discoveryEntity struct {
	Platform        string `json:"platform"`
	UniqueID        string `json:"unique_id"`
	DefaultEntityID string `json:"default_entity_id"`
	Name            string `json:"name"`
	ValueTemplate   string `json:"value_template"`
	AttributesTopic string `json:"json_attributes_topic"`
	Unit            string `json:"unit_of_measurement,omitempty"`
	DeviceClass     string `json:"device_class,omitempty"`
	StateClass      string `json:"state_class,omitempty"`
	Category        string `json:"entity_category,omitempty"`
}

// homeAssistantState contains the states of the target's entities. Null means unknown.
type homeAssistantState struct {
	Forecast *float64   `json:"forecast"`
	For      *time.Time `json:"for,omitempty"` // time that the forecast is for
	Model    string     `json:"model"`
	Residual *float64   `json:"residual"`
	Anomaly  *string    `json:"anomaly"` // ON or OFF
	Score    float64    `json:"score,omitempty"`
}

// homeAssistantHealth contains the state of the entity for the agent's health.
type homeAssistantHealth struct {
	Problem  string   `json:"problem"` // ON or OFF
	Problems []string `json:"problems"`
}

func onOff(on bool) string {
	if on {
		return "ON"
	}
	return "OFF"
}

// topic returns a topic of the device. Several devices may publish their plain JSON on the same topic.
func (h *homeAssistant) topic(name string) string {
	return h.device.Topic + "/" + h.device.ID + "/" + name
}

func (h *homeAssistant) availability(payload string) mqtt.Message {
	return mqtt.Message{Topic: h.topic("availability"), Payload: []byte(payload), QoS: mqtt.AtLeastOnce,
		Retained: true}
}

// Will implements Announcer.
func (h *homeAssistant) Will() mqtt.Message { return h.availability("offline") }

// Birth implements Announcer.
func (h *homeAssistant) Birth(health Health, target *modelfile.PredictionTarget) (device, forecasts []mqtt.Message) {
	topic := h.topic("health")
	entity := h.entity("binary_sensor", "", "Health", "problem", topic)
	entity.DeviceClass, entity.Category = "problem", "diagnostic"
	device = []mqtt.Message{
		h.discovery("health", topic, map[string]discoveryEntity{"health": entity}),
		retainedJSON(topic, homeAssistantHealth{onOff(len(health.Problems) > 0),
			append([]string{}, health.Problems...)}),
		h.availability("online"),
	}
	if target != nil {
		forecasts = []mqtt.Message{h.targetDiscovery(target), h.stateMessage()}
	}
	return device, forecasts
}

// targetDiscovery returns the discovery message for the entities of a target.
func (h *homeAssistant) targetDiscovery(target *modelfile.PredictionTarget) mqtt.Message {
	topic := h.stateMessage().Topic
	forecast := h.entity("sensor", target.TargetColumn, "Forecast", "forecast", topic)
	// A forecast has no state class: Home Assistant's "measurement" excludes predictions.
	forecast.Unit, forecast.DeviceClass = homeAssistantUnit(target.Unit), homeAssistantClass(target)
	residual := h.entity("sensor", target.TargetColumn, "Residual", "residual", topic)
	// A residual has no device class: Home Assistant would convert a difference like an absolute temperature.
	residual.Unit, residual.StateClass = forecast.Unit, "measurement"
	anomaly := h.entity("binary_sensor", target.TargetColumn, "Anomaly", "anomaly", topic)
	anomaly.DeviceClass = "problem"
	return h.discovery("forecast_"+topicID(target.TargetColumn), topic, map[string]discoveryEntity{
		"forecast": forecast, "residual": residual, "anomaly": anomaly})
}

// discovery returns the discovery message with the given object id for entities whose state is on topic.
func (h *homeAssistant) discovery(object, topic string, entities map[string]discoveryEntity) mqtt.Message {
	d := h.device
	return retainedJSON(d.Prefix+"/device/"+d.uniqueID()+"/"+object+"/config", discoveryMessage{
		Device: discoveryDevice{Identifiers: []string{d.uniqueID()}, Name: d.ID, Manufacturer: "fedmesh",
			Model: "agentd", SoftwareVersion: d.Version},
		Origin: discoveryOrigin{Name: "fedmesh", SoftwareVersion: d.Version,
			SupportURL: "https://github.com/fedmesh/fedmesh"},
		AvailabilityTopic: h.Will().Topic, StateTopic: topic, Entities: entities})
}

// entity returns the description of an entity whose state is the given key of a JSON message. Its identifiers depend
// only on the device, the target and the name of the entity.
func (h *homeAssistant) entity(platform, target, name, key, topic string) discoveryEntity {
	id := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, strings.ToLower(h.device.ID+" "+strings.TrimSpace(target+" "+name)))
	return discoveryEntity{Platform: platform, UniqueID: h.device.uniqueID() + "/" + target + "/" + key,
		Name: strings.TrimSpace(name + " " + target), DefaultEntityID: platform + "." + id,
		ValueTemplate: "{{ value_json." + key + " }}", AttributesTopic: topic}
}

// Forecast implements Announcer. The residual of an earlier row does not replace the forecast of a later row.
func (h *homeAssistant) Forecast(f predict.Forecast) ([]mqtt.Message, error) {
	all, err := h.plainJSON.Forecast(f)
	if err != nil {
		return nil, err
	}
	if s := &h.state; !f.RowTime.Before(h.forecastOf) {
		s.Forecast, s.For, s.Model, h.forecastOf = &f.Value, nil, f.ModelName, f.RowTime
		if at := f.TargetTime(); !at.IsZero() {
			s.For = &at
		}
	}
	if f.Residual != nil {
		anomaly := onOff(f.IsAnomaly)
		h.state.Residual, h.state.Anomaly, h.state.Score = f.Residual, &anomaly, f.AnomalyScore
	}
	return append(all, h.stateMessage()), nil
}

func (h *homeAssistant) stateMessage() mqtt.Message {
	return retainedJSON(h.topic("state"), h.state)
}

// RequestFilters implements Announcer. Home Assistant publishes on this topic when it starts.
func (h *homeAssistant) RequestFilters() []string { return []string{h.device.Prefix + "/status"} }

// IsRequest implements Announcer.
func (h *homeAssistant) IsRequest(m mqtt.Message) bool { return string(m.Payload) == "online" }

// homeAssistantUnit returns a unit in the spelling of Home Assistant, which distinguishes the two micro signs.
func homeAssistantUnit(unit string) string { return strings.ReplaceAll(unit, "\u00b5", "\u03bc") }

// homeAssistantClasses lists the device classes by unit. If an entry has words, its class is used only for targets
// whose name contains one of the words, because other quantities have the same unit.
var homeAssistantClasses = []struct {
	units, words []string
	class        string
}{
	{[]string{"°C", "°F", "K"}, nil, "temperature"},
	{[]string{"Pa", "hPa", "kPa", "bar", "mbar", "mmHg", "inHg", "psi"}, nil, "pressure"},
	{[]string{"W", "kW", "MW"}, nil, "power"},
	{[]string{"V", "mV"}, nil, "voltage"},
	{[]string{"A", "mA"}, nil, "current"},
	{[]string{"Hz", "kHz"}, nil, "frequency"},
	{[]string{"lx"}, nil, "illuminance"},
	{[]string{"W/m²"}, nil, "irradiance"},
	{[]string{"m/s", "km/h", "mph", "kn"}, []string{"wind"}, "wind_speed"},
	{[]string{"%"}, []string{"humid"}, "humidity"},
	{[]string{"ppm"}, []string{"co2"}, "carbon_dioxide"},
	{[]string{"μg/m³"}, []string{"pm25", "pm2.5", "pm2_5"}, "pm25"},
	{[]string{"μg/m³"}, []string{"pm10"}, "pm10"},
}

// homeAssistantClass returns the device class of a target, or "" if its unit and name do not determine one.
func homeAssistantClass(target *modelfile.PredictionTarget) string {
	unit, name := homeAssistantUnit(target.Unit), strings.ToLower(target.TargetColumn)
	for _, c := range homeAssistantClasses {
		matches := len(c.words) == 0
		for _, word := range c.words {
			matches = matches || strings.Contains(name, word)
		}
		for _, u := range c.units {
			if u == unit && matches {
				return c.class
			}
		}
	}
	return ""
}
