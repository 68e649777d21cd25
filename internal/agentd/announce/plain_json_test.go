package announce_test

import (
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/agent/predict"
	"github.com/fedmesh/fedmesh/internal/agentd/announce"
	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/modelfile"
)

// TestForecastText checks the JSON payload of a forecast that subscribers receive.
func TestForecastText(t *testing.T) {
	r, at := -2.5, time.Unix(1456812000, 0).UTC()
	for want, f := range map[string]predict.Forecast{
		`{"device":"hall-2","target":"y","model":"7/42","prediction":81.5}`: {ModelName: "7/42", Value: 81.5,
			Target: modelfile.PredictionTarget{TargetColumn: "y"}},
		`{"time":"2016-03-01T06:00:00Z","for":"2016-03-01T06:00:00Z","horizon_seconds":0,"device":"hall-2",` +
			`"model":"7/42","prediction":3}`: {RowTime: at, ModelName: "7/42", Value: 3},
		`{"time":"2016-03-01T06:00:00Z","for":"2016-03-01T12:00:00Z","horizon_seconds":21600,"device":"hall-2",` +
			`"target":"pm25 in 6h","unit":"log1p(µg/m³)","model":"7/42","prediction":1,"probabilities":[0.25,0.75],` +
			`"residual":-2.5,"score":2,"anomaly":true}`: {RowTime: at,
			Target: modelfile.PredictionTarget{TargetColumn: "pm25 in 6h", Unit: "log1p(µg/m³)",
				Horizon: 6 * time.Hour},
			ModelName:          "7/42",
			Value:              1,
			ClassProbabilities: []float64{0.25, 0.75}, Residual: &r, AnomalyScore: 2, IsAnomaly: true},
	} {
		device := announce.Device{ID: "hall-2", Topic: "site/forecast"}
		got, err := announce.New(settings.AnnounceJSON, device).Forecast(f)
		if err != nil || len(got) != 1 || string(got[0].Payload) != want || got[0].Topic != "site/forecast" ||
			got[0].Retained {
			t.Errorf("%+v, %v; want %s", got, err, want)
		}
	}
}
