package announce

import (
	"encoding/json"
	"time"

	"github.com/fedmesh/fedmesh/agent/predict"
	"github.com/fedmesh/fedmesh/modelfile"
	"github.com/fedmesh/fedmesh/mqtt"
)

// thinEdge registers agentd as a service of a thin-edge.io device, with its health, and publishes forecasts as
// measurements of the service (https://thin-edge.github.io/thin-edge.io/references/mqtt-api/).
type thinEdge struct {
	plainJSON
	service string // topic of the service
}

func newThinEdge(d *Device) Announcer {
	return &thinEdge{plainJSON{d}, d.Prefix + "/device/main/service/" + d.uniqueID()}
}

// thinEdgeService is the registration of a service.
type thinEdgeService struct {
	EntityType  string `json:"@type"`
	Parent      string `json:"@parent"`
	Name        string `json:"name"`
	ServiceType string `json:"type"`
}

// thinEdgeHealth is the health of a service.
type thinEdgeHealth struct {
	PID    int    `json:"pid"`
	Status string `json:"status"` // up or down
	Time   string `json:"time,omitempty"`
}

// thinEdgeUnits contains the units of measurements by name.
type thinEdgeUnits struct {
	Units map[string]string `json:"units"`
}

// thinEdgeMeasurement is a measurement. Its time is the time that the forecast is for.
type thinEdgeMeasurement struct {
	Time     *time.Time `json:"time,omitempty"`
	Forecast float64    `json:"forecast"`
	Residual *float64   `json:"residual,omitempty"`
	Score    *float64   `json:"score,omitempty"`
}

func (t *thinEdge) health(h thinEdgeHealth) mqtt.Message {
	return retainedJSON(t.service+"/status/health", h)
}

// Will implements Announcer.
func (t *thinEdge) Will() mqtt.Message {
	return t.health(thinEdgeHealth{PID: t.device.PID, Status: "down"})
}

// Birth implements Announcer. The status of a service is only "up" or "down", so it does not show problems of a running
// agent.
func (t *thinEdge) Birth(_ Health, target *modelfile.PredictionTarget) (device, forecasts []mqtt.Message) {
	device = []mqtt.Message{
		retainedJSON(t.service, thinEdgeService{"service", "device/main//", t.device.Federation + " " + t.device.ID,
			"fedmesh"}),
		t.health(thinEdgeHealth{t.device.PID, "up", t.device.Now().UTC().Format(time.RFC3339)}),
	}
	if target != nil {
		units := thinEdgeUnits{map[string]string{}}
		if target.Unit != "" {
			units.Units["forecast"], units.Units["residual"] = target.Unit, target.Unit
		}
		forecasts = []mqtt.Message{retainedJSON(t.measurementTopic(target)+"/meta", units)}
	}
	return device, forecasts
}

// measurementTopic returns the topic of the measurements of a target. The type of a measurement is the target.
func (t *thinEdge) measurementTopic(target *modelfile.PredictionTarget) string {
	kind := "forecast"
	if target.TargetColumn != "" {
		kind = topicID(target.TargetColumn)
	}
	return t.service + "/m/" + kind
}

// Forecast implements Announcer.
func (t *thinEdge) Forecast(f predict.Forecast) ([]mqtt.Message, error) {
	all, err := t.plainJSON.Forecast(f)
	if err != nil {
		return nil, err
	}
	m := thinEdgeMeasurement{Forecast: f.Value, Residual: f.Residual}
	if at := f.TargetTime(); !at.IsZero() {
		m.Time = &at
	}
	if f.AnomalyScore > 0 {
		m.Score = &f.AnomalyScore
	}
	payload, err := json.Marshal(m)
	return append(all, mqtt.Message{Topic: t.measurementTopic(&f.Target), Payload: payload,
		QoS: mqtt.AtLeastOnce}), err
}

// RequestFilters implements Announcer. The filters match health check requests for this service and for all services of
// the device.
func (t *thinEdge) RequestFilters() []string {
	const check = "/cmd/health/check"
	return []string{t.service + check, t.device.Prefix + "/device/main//" + check}
}

// IsRequest implements Announcer.
func (t *thinEdge) IsRequest(mqtt.Message) bool { return true }
