//go:build nightly

package demo

import (
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
)

// TestMeanIsConservedForLong checks that mixing conserves the mean of all parameters over 500 local steps of 20 agents,
// with each kind of broker.
func TestMeanIsConservedForLong(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(t *testing.T, o *Options)
	}{
		{"embedded", func(*testing.T, *Options) {}},
		{"mosquitto", func(t *testing.T, o *Options) {
			o.Broker, o.SiteBroker = brokers.OpenMosquitto(t), brokers.OpenMosquitto(t)
		}},
		{"one mosquitto", func(t *testing.T, o *Options) { o.Broker = brokers.OpenMosquitto(t) }},
		{"rounded", func(_ *testing.T, o *Options) { o.Codec = "bfloat16" }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			conserved(t, func(o *Options) {
				o.Rounds = 500 / regressionSteps
				tt.change(t, o)
			})
		})
	}
}
