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

// arrivals is a display that notes in which order updates come.
type arrivals struct {
	plain
	order []wire.AgentID // of all training rounds
	seen  int            // of the present one
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

// arrive runs the demo on a network of its own and returns the model's hash and
// the order in which updates came.
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

// TestOneSeedGivesOneModel shuffles the arrivals by a network that delays each
// agent differently.
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
