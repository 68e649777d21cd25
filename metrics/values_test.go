package metrics_test

import (
	"math"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/fedmesh/fedmesh/agent/training"
	"github.com/fedmesh/fedmesh/coordinator/aggregation"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/metrics"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

func wantSeries(t *testing.T, series map[string]string, want map[string]string) {
	t.Helper()
	for name, value := range want {
		if got, ok := series[name]; got != value || ok == (value == "") {
			t.Errorf("%s is %q, want %q", name, got, value)
		}
	}
}

// TestUnknownValuesHaveNoSeries checks that a series is removed when its value becomes unknown.
func TestUnknownValuesHaveNoSeries(t *testing.T) {
	reg, o := programs[1].start()
	o.tell(aggregation.ModelReady{HeldOutScore: &learner.Score{Risk: 1, R2: 0.5, Accuracy: math.NaN(), Samples: 3}})
	wantSeries(t, seriesOf(t, reg), map[string]string{
		"coordinator_held_out_risk": "1", "coordinator_held_out_r2": "0.5", "coordinator_held_out_accuracy_ratio": "",
		"coordinator_held_out_samples": "3",
	})
	o.tell(aggregation.ModelReady{HeldOutScore: &learner.Score{Risk: 2, R2: math.Inf(-1), Accuracy: 0.5, Samples: 3}})
	wantSeries(t, seriesOf(t, reg),
		map[string]string{"coordinator_held_out_risk": "2", "coordinator_held_out_r2": "",
			"coordinator_held_out_accuracy_ratio": "0.5"})
	o.tell(aggregation.ModelReady{})
	wantSeries(t, seriesOf(t, reg), map[string]string{
		"coordinator_held_out_risk": "", "coordinator_held_out_accuracy_ratio": "", "coordinator_held_out_samples": "",
	})

	reg, o = programs[0].start()
	o.tell(training.LocalTrainingFinished{LocalSteps: 1, RiskBefore: 1, RiskAfter: math.NaN()})
	wantSeries(t, seriesOf(t, reg), map[string]string{"agentd_local_risk_before": "1", "agentd_local_risk_after": ""})
}

// TestMeansNeedAllUpdates checks that the means over the updates of a round give all updates the same weight, and do
// not mix rounds. After a restart during a round, the means of this round must be unknown.
func TestMeansNeedAllUpdates(t *testing.T) {
	reg, o := programs[1].start()
	end := func(r wire.RoundID, accepted int, before, after, norm string) {
		t.Helper()
		o.tell(round.RoundClosed{Round: r, Kind: wire.KindTraining, SelectedAgents: accepted,
			AcceptedUpdates: accepted})
		wantSeries(t, seriesOf(t, reg), map[string]string{
			"coordinator_last_round_risk_before": before, "coordinator_last_round_risk_after": after,
			"coordinator_last_round_update_norm": norm,
		})
	}
	o.tell(acceptedUpdate("a", 1, 9, 1, 0.5, 4))
	o.tell(acceptedUpdate("b", 1, 1, 3, 1.5, 2))
	end(1, 2, "2", "1", "3")
	o.tell(acceptedUpdate("a", 2, 9, 5, 4, 1))
	end(2, 1, "5", "4", "1")
	o.tell(acceptedUpdate("a", 3, 9, 7, 6, 1))
	end(3, 2, "", "", "")
	end(4, 1, "", "", "")
	o.tell(acceptedUpdate("a", 5, 9, 8, 7, 1))
	o.tell(round.UpdateAccepted{Agent: "b", Round: 5, Norm: 1e9, Update: wire.Update{Kind: wire.KindStatistics}})
	end(5, 1, "8", "7", "1")
}

// TestTraffic checks that a dropped incoming message is counted as traffic, but an outgoing message that was not sent
// is not.
func TestTraffic(t *testing.T) {
	for _, p := range programs {
		wantSeries(t, seriesOf(t, p.played()), map[string]string{
			p.name + `_mqtt_messages_total{direction="received",kind="blob"}`:               "1",
			p.name + `_mqtt_payload_bytes_total{direction="received",kind="blob"}`:          "60000",
			p.name + `_mqtt_messages_total{direction="received",kind="unknown"}`:            "1",
			p.name + `_mqtt_payload_bytes_total{direction="received",kind="unknown"}`:       "50",
			p.name + `_mqtt_messages_total{direction="sent",kind="status"}`:                 "2",
			p.name + `_mqtt_payload_bytes_total{direction="sent",kind="status"}`:            "1500",
			p.name + `_mqtt_messages_total{direction="sent",kind="update"}`:                 "0",
			p.name + `_mqtt_dropped_messages_total{direction="received",reason="overflow"}`: "1",
			p.name + `_mqtt_dropped_messages_total{direction="sent",reason="unsent"}`:       "1",
		})
	}
}

// TestTrafficFromManyGoroutines counts traffic concurrently with events and a scrape; run it with -race.
func TestTrafficFromManyGoroutines(t *testing.T) {
	const goroutines, each = 4, 250
	for _, p := range programs {
		reg, o := p.start()
		handler := metrics.Handler(reg, nil)
		var wg sync.WaitGroup
		for range goroutines {
			wg.Go(func() {
				for i := range each {
					o.Traffic(mqtt.ObservedMessage{IsIncoming: true, PayloadBytes: 2, IsDropped: i%5 == 0},
						mqtt.KindAnnouncement)
				}
			})
		}
		wg.Go(func() {
			for _, event := range p.script {
				o.tell(event)
			}
		})
		wg.Go(func() {
			for range 5 {
				handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/metrics", nil))
			}
		})
		wg.Wait()
		wantSeries(t, seriesOf(t, reg), map[string]string{
			p.name + `_mqtt_messages_total{direction="received",kind="round"}`:              "1000",
			p.name + `_mqtt_payload_bytes_total{direction="received",kind="round"}`:         "2000",
			p.name + `_mqtt_dropped_messages_total{direction="received",reason="overflow"}`: "200",
		})
	}
}
