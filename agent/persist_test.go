package agent

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// TestSaveOfARoundThatIsOver: a write that fails is tried again only while its
// round lasts, or it would put an old update in the place of the next one.
func TestSaveOfARoundThatIsOver(t *testing.T) {
	for name, want := range map[string]int{"under way": 1, "over": 0} {
		t.Run(name, func(t *testing.T) {
			a := &Agent{cfg: Config{Dir: filepath.Join(t.TempDir(), "gone"), Observer: testkit.Observer[Fact, round.AgentFact](unheard)}, ctx: t.Context(), results: make(chan func(), 1)}
			u := &update{Update: wire.Update{Kind: wire.KindTraining}}
			if err := u.take([]byte{1, 2, 3, 4}, wire.Digest{}); err != nil {
				t.Fatal(err)
			}
			ctx, cease := context.WithCancel(t.Context())
			defer cease()
			a.save(ctx, u)
			if name == "over" {
				cease() // as release does, before the owner hears of the write
			}
			(<-a.results)()
			if len(a.unwritten) != want {
				t.Errorf("%d writes are tried again, want %d", len(a.unwritten), want)
			}
		})
	}
}
