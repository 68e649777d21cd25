package announce_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/fedmesh/fedmesh/internal/settings"
)

// TestThinEdge checks the messages against the examples in the MQTT API reference of thin-edge.io
// (docs/src/references/mqtt-api.md): registration of a service, health, will, measurements and their units.
func TestThinEdge(t *testing.T) {
	s := newSite(t)
	p := s.start(t.TempDir(), settings.AnnounceThinEdge)
	f := forecast("pm25", 0)
	publish(t, p, f)
	const service = "te/device/main/service/fedmesh_air-hall-1"
	wanted := map[string]string{
		service: `{"@type":"service","@parent":"device/main//","name":"air hall-1",` +
			`"type":"fedmesh"}`,
		service + "/status/health": `{"pid":42,"status":"up","time":"2027-01-15T08:00:00Z"}`,
		service + "/m/pm25/meta":   `{"units":{"forecast":"°C","residual":"°C"}}`,
	}
	if !maps.Equal(s.retained, wanted) {
		t.Errorf("%v, want %v", s.retained, wanted)
	}
	will := p.Will()
	want(t, will.Topic+" "+string(will.Payload), service+`/status/health {"pid":42,"status":"down"}`)
	last := s.sent[len(s.sent)-1]
	want(t, last.Topic+" "+string(last.Payload), service+`/m/pm25 {"time":"2026-03-01T13:00:00Z","forecast":21.8,`+
		`"residual":0.5,"score":1.5}`)
	if filters := []string{service + "/cmd/health/check", "te/device/main///cmd/health/check"}; last.Retained ||
		!slices.Equal(s.filters, filters) {
		t.Errorf("retained %v, filters %v, want %v", last.Retained, s.filters, filters)
	}
}
