package agentd

import (
	"context"
	"encoding/json"
	"time"

	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/agent/predict"
	"github.com/fedmesh/fedmesh/internal/daemon"
	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/mqtt"
)

// forecastJSON is the published form of a forecast.
type forecastJSON struct {
	RowTime        *time.Time `json:"time,omitempty"`            // time of the row
	TargetTime     *time.Time `json:"for,omitempty"`             // time that the prediction is for
	HorizonSeconds *float64   `json:"horizon_seconds,omitempty"` // TargetTime minus RowTime, in seconds
	Device         string     `json:"device"`
	TargetName     string     `json:"target,omitempty"`
	TargetUnit     string     `json:"unit,omitempty"` // unit of the target
	ModelVersion   string     `json:"model"`          // RUN/VERSION
	Prediction     float64    `json:"prediction"`
	Probabilities  []float64  `json:"probabilities,omitempty"`
	Residual       *float64   `json:"residual,omitempty"`
	AnomalyScore   float64    `json:"score,omitempty"`
	IsAnomaly      bool       `json:"anomaly,omitempty"`
}

// encodeForecast returns a forecast of a device as JSON.
func encodeForecast(device string, f predict.Forecast) ([]byte, error) {
	text := forecastJSON{Device: device, TargetName: f.Target.TargetColumn, TargetUnit: f.Target.Unit,
		ModelVersion:  f.ModelName,
		Prediction:    f.Value,
		Probabilities: f.ClassProbabilities, Residual: f.Residual, AnomalyScore: f.AnomalyScore, IsAnomaly: f.IsAnomaly}
	if at, horizon := f.TargetTime(), f.Target.Horizon.Seconds(); !at.IsZero() {
		text.RowTime, text.TargetTime, text.HorizonSeconds = &f.RowTime, &at, &horizon
	}
	return json.Marshal(text)
}

// startPublishingForecasts makes the agent publish its forecasts over a separate connection. The function end closes
// that connection.
func startPublishingForecasts(ctx context.Context, cfg *agent.Config, s *settings.Agent) (end func() error, err error) {
	site := s.Predict.SiteBroker()
	conn, err := daemon.DialBroker(ctx, &site, cfg.Topics, cfg.Topics.ClientID(cfg.ID)+"-predict",
		cfg.Logger.With("connection", "forecasts"),
		func(mqtt.ObservedMessage, mqtt.TopicKind) {},
		func(m *mqtt.Options) { m.CertificateCheckTime = cfg.Identity.Clock.Now })
	if err != nil {
		return nil, err
	}
	done := make(chan struct{})
	go func() { // drain the events; the session itself logs link changes
		defer close(done)
		for range conn.Events() {
			continue
		}
	}()
	topic := s.Predict.ForecastTopic
	cfg.Predict.PublishForecast = func(f predict.Forecast) error {
		payload, err := encodeForecast(s.ID, f)
		if err != nil {
			return err
		}
		return conn.Publish(mqtt.Message{Topic: topic, Payload: payload})
	}
	return func() error {
		err := conn.Close()
		<-done
		return err
	}, nil
}
