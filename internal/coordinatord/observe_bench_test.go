package coordinatord

import (
	"io"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/internal/coordinatord/coordinatorstatus"
	"github.com/fedmesh/fedmesh/internal/logging"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// BenchmarkObserve measures the cost of the coordinator's most frequent events: agent messages and updates.
func BenchmarkObserve(b *testing.B) {
	log, err := logging.New(io.Discard, logging.Options{Level: "info", Format: "text"})
	if err != nil {
		b.Fatal(err)
	}
	o := testOptions(log, prometheus.NewRegistry())
	all := observe.Observers{o.eventDispatcher, &auditor{}, coordinatorstatus.New("", "air", time.Now, o.Board)}
	for _, event := range []struct {
		name string
		of   func() observe.Event
	}{
		{"MessageAccepted", func() observe.Event { return coordinator.MessageAccepted{Agent: "a1"} }},
		{"UpdateAccepted", func() observe.Event {
			return round.UpdateAccepted{Agent: "a1", Round: 7, Norm: 0.5, TimeSinceAnnouncement: time.Second,
				Update: wire.Update{Kind: wire.KindTraining, LocalSteps: 20}}
		}},
	} {
		b.Run(event.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				all.Observe(event.of())
			}
		})
	}
}
