package demo

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"testing"

	"github.com/fedmesh/fedmesh/mqtt/broker"
	"github.com/fedmesh/fedmesh/wire"
)

// arrivals is a display that records the order in which the updates arrive.
type arrivals struct {
	plain
	order []wire.AgentID // agents in the order in which their updates arrived, over all training rounds
	seen  int            // number of updates that have arrived in the current round
}

func (a *arrivals) round(p *progress) {
	if len(p.Done) == 0 {
		a.seen = 0
	}
	for _, id := range p.Participants {
		if _, in := p.Done[id]; in && (len(a.order) == 0 || !slices.Contains(a.order[len(a.order)-a.seen:], id)) {
			a.order = append(a.order, id)
			a.seen++
		}
	}
}

// arrive runs the demonstration over a network with random delays. It returns the hash of the final model and the order
// in which the updates arrived.
func arrive(t *testing.T, seed, delays uint64) (model string, order []wire.AgentID) {
	t.Helper()
	if testing.Short() {
		t.Skip("a whole demonstration is not short")
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	server, err := broker.Start(broker.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	o := Defaults()
	o.Seed, o.Rounds, o.Broker = seed, 4, newSlowNetwork(t, server.URL(), delays).url()
	fed, err := layOut(o, t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	show := &arrivals{plain: plain{io.Discard}}
	if err := fed.run(ctx, newWatcher(show, o.Rounds)); err != nil {
		t.Fatal(err)
	}
	if model, err = modelHash(fed.coordinator.StateDir); err != nil {
		t.Fatal(err)
	}
	return model, show.order
}

// TestOneSeedGivesOneModel checks that the final model does not depend on the order in which the updates arrive.
func TestOneSeedGivesOneModel(t *testing.T) {
	model, order := arrive(t, 1, 1)
	if len(order) != 24 {
		t.Errorf("%d updates came, want 24: %v", len(order), order)
	}
	again, shuffled := arrive(t, 1, 2)
	if slices.Equal(order, shuffled) {
		t.Errorf("the updates came in one order: this shows nothing: %v", order)
	}
	if again != model {
		t.Errorf("one seed gave two models, %s and %s", model, again)
	}
	if other, _ := arrive(t, 2, 1); other == model {
		t.Error("two seeds gave one model")
	}
}
