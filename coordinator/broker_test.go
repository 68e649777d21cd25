package coordinator_test

import (
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/agent/budget"
	"github.com/fedmesh/fedmesh/internal/testkit/memory"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/mqtt/broker"
	"github.com/fedmesh/fedmesh/round"
)

// TestOverTCP trains eight agents for three rounds over TCP with the embedded broker. The model is downloaded in parts,
// and uploads of updates use credit-based flow control.
func TestOverTCP(t *testing.T) {
	server, err := broker.Start(broker.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	f := newFederation(t, 8, memory.Options{})
	f.broker = nil
	f.connect = func(clientID string, will func() mqtt.Message) mqtt.Conn {
		conn, err := mqtt.Dial(t.Context(),
			mqtt.Options{URL: server.URL(), ClientID: clientID, Will: will, MailboxMessages: 4096,
				MailboxBytes: 64 << 20})
		if err != nil {
			t.Error(err)
		}
		return conn
	}
	large(f)
	f.cfg.Task.Model.HiddenUnits = []uint32{128, 128}
	f.cfg.Round.MaxAggregations, f.cfg.Round.Gather.HelloSpread = 3, 50*time.Millisecond
	for _, a := range f.agents {
		a.cfg.Training.DeclaredStepTime = 0
	}
	defer f.stop()
	f.start()
	f.finished(time.Minute)
	closed := events[round.RoundClosed](f)
	if len(closed) != 4 {
		t.Fatalf("%d rounds closed, want 4", len(closed))
	}
	for _, c := range closed {
		if c.AcceptedUpdates != 8 {
			t.Errorf("%+v", c)
		}
	}
}

// TestBudgetEstimate checks that the estimated traffic of a round over TCP is an upper bound and not much too high.
func TestBudgetEstimate(t *testing.T) {
	server, err := broker.Start(broker.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	f := newFederation(t, 3, memory.Options{})
	f.broker = nil
	meters := map[string]*mqtt.TrafficMeter{}
	for _, a := range f.agents {
		a.cfg.Training.DeclaredStepTime, a.cfg.Budget = 0, &budget.UplinkBudget{MonthlyBytes: 1 << 40,
			Meter: new(mqtt.TrafficMeter)}
		meters[f.topics.ClientID(a.id)] = a.cfg.Budget.Meter
	}
	f.connect = func(clientID string, will func() mqtt.Message) mqtt.Conn {
		conn, err := mqtt.Dial(t.Context(),
			mqtt.Options{URL: server.URL(), ClientID: clientID, Will: will, Meter: meters[clientID]})
		if err != nil {
			t.Error(err)
		}
		return conn
	}
	large(f)
	f.cfg.Round.MaxAggregations, f.cfg.Round.Gather.HelloSpread = 3, 50*time.Millisecond
	defer f.stop()
	f.start()
	f.finished(time.Minute)
	for _, a := range f.agents {
		var estimate uint64 // estimated traffic of a training round in bytes
		for _, b := range events[budget.UplinkUsageChanged](f, a.id) {
			estimate = max(estimate, b.EstimatedRoundBytes)
		}
		if moved := a.cfg.Budget.Meter.TotalBytes(); moved > 4*estimate || moved < 2*estimate {
			t.Errorf("%s moved %d bytes in a round of statistics and three of training, each estimated at %d", a.id,
				moved, estimate)
		} else {
			t.Logf("%s moved %d bytes, a round is estimated at %d", a.id, moved, estimate)
		}
	}
}
