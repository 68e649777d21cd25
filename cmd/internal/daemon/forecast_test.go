package daemon

import (
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/agent"
)

// TestForecastText is what a subscriber gets.
func TestForecastText(t *testing.T) {
	r := -2.5
	for want, f := range map[string]agent.Forecast{
		`{"model":"7/42","prediction":81.5}`: {Model: "7/42", Value: 81.5},
		`{"time":"2016-03-01T06:00:00Z","model":"7/42","prediction":1,"probabilities":[0.25,0.75],"residual":-2.5,` +
			`"score":2,"anomaly":true}`: {Time: time.Unix(1456812000, 0).UTC(), Model: "7/42", Value: 1,
			Classes: []float64{0.25, 0.75}, Residual: &r, Score: 2, Anomaly: true},
	} {
		if got, err := encodeForecast(f); string(got) != want || err != nil {
			t.Errorf("%s, %v; want %s", got, err, want)
		}
	}
}
