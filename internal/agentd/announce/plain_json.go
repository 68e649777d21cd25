package announce

import (
	"encoding/json"
	"time"

	"github.com/fedmesh/fedmesh/agent/predict"
	"github.com/fedmesh/fedmesh/modelfile"
	"github.com/fedmesh/fedmesh/mqtt"
)

// plainJSON publishes forecasts as JSON on one topic. plainJSON does not announce the device.
type plainJSON struct{ device *Device }

func newPlainJSON(d *Device) Announcer { return &plainJSON{d} }

// Will implements Announcer.
func (*plainJSON) Will() mqtt.Message { return mqtt.Message{} }

// Birth implements Announcer.
func (*plainJSON) Birth(Health, *modelfile.PredictionTarget) (device, forecasts []mqtt.Message) {
	return nil, nil
}

// RequestFilters implements Announcer.
func (*plainJSON) RequestFilters() []string { return nil }

// IsRequest implements Announcer.
func (*plainJSON) IsRequest(mqtt.Message) bool { return false }

// forecastJSON is the published form of a forecast.
type forecastJSON struct {
	RowTime        *time.Time `json:"time,omitempty"`            // time of the row
	TargetTime     *time.Time `json:"for,omitempty"`             // time that the prediction is for
	HorizonSeconds *float64   `json:"horizon_seconds,omitempty"` // TargetTime minus RowTime, in seconds
	Device         string     `json:"device"`
	TargetName     string     `json:"target,omitempty"`
	TargetUnit     string     `json:"unit,omitempty"` // unit of the target
	ModelVersion   string     `json:"model"`          // model version in the form RUN/VERSION
	Prediction     float64    `json:"prediction"`
	Probabilities  []float64  `json:"probabilities,omitempty"`
	Residual       *float64   `json:"residual,omitempty"`
	AnomalyScore   float64    `json:"score,omitempty"`
	IsAnomaly      bool       `json:"anomaly,omitempty"`
}

// Forecast implements Announcer.
func (p *plainJSON) Forecast(f predict.Forecast) ([]mqtt.Message, error) {
	text := forecastJSON{Device: p.device.ID, TargetName: f.Target.TargetColumn, TargetUnit: f.Target.Unit,
		ModelVersion: f.ModelName, Prediction: f.Value, Probabilities: f.ClassProbabilities, Residual: f.Residual,
		AnomalyScore: f.AnomalyScore, IsAnomaly: f.IsAnomaly}
	if at, horizon := f.TargetTime(), f.Target.Horizon.Seconds(); !at.IsZero() {
		text.RowTime, text.TargetTime, text.HorizonSeconds = &f.RowTime, &at, &horizon
	}
	payload, err := json.Marshal(text)
	return []mqtt.Message{{Topic: p.device.Topic, Payload: payload}}, err
}
