package fetch

import (
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/agent/state"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/memory"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// newFetcher returns a Fetcher that is connected to an empty broker.
func newFetcher(t *testing.T) *Fetcher {
	t.Helper()
	topics, err := mqtt.NewTopics("", "plant")
	if err != nil {
		t.Fatal(err)
	}
	conn := memory.New(memory.Options{}).Connect("press", nil)
	t.Cleanup(func() { _ = conn.Close() })
	loop, observer := host.NewEventLoop(nil), testkit.Observer(func(observe.Event) {})
	core := &part.AgentCore{Topics: topics, StateFolder: state.Folder{Disk: store.LocalDisk, Dir: t.TempDir(),
		Observer: observer},
		WriteRetrier: &state.WriteRetrier{Loop: loop, Observer: observer}, Loop: loop,
		DataJobs: host.NewSerialJobQueue(loop),
		Conn:     conn, IsConnected: true, Observer: observer, Logger: slog.New(slog.DiscardHandler),
		Rand: rand.New(rand.NewPCG(1, 2)), HandleRoundEvent: func(agentround.Event) {}}
	f, err := New(core, Config{MaxBytes: 1 << 20}, func() {})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestDone checks that the function done is called exactly once for each blob, whether the blob arrives, is replaced,
// is cancelled, or has an invalid key.
func TestDone(t *testing.T) {
	f := newFetcher(t)
	var got []string
	fetch := func(name string, ref wire.BlobRef) {
		f.Fetch(ref, Model, func(b *Blob, err error) {
			switch {
			case errors.Is(err, ErrCanceled):
				name += " canceled"
			case err != nil:
				name += " failed"
			default:
				content, err := b.ReadAll()
				if err != nil {
					t.Error(err)
				}
				name += " has " + string(content)
			}
			got = append(got, name)
		})
	}
	remote := func(n byte) wire.BlobRef {
		return wire.BlobRef{Hash: wire.Digest{n}, ManifestHash: wire.Digest{n}, Length: 100}
	}
	inline := []byte("abcd")
	fetch("first", remote(1))
	if hash, ok := f.BlobBeingFetched(Model); !ok || hash != remote(1).Hash || !f.RenewRetries(remote(1), Model) ||
		f.RenewRetries(remote(2), Model) || !f.NeedsLink() {
		t.Errorf("the first blob: %v %v, want it to be fetched", hash, ok)
	}
	fetch("second", remote(2))
	fetch("third", wire.BlobRef{Hash: wire.BlobDigest(inline), Length: 4, Inline: inline})
	sealed := remote(4)
	sealed.GroupKeyID = 7
	fetch("fourth", sealed)
	if _, ok := f.BlobBeingFetched(Model); ok || !f.AwaitsGroupKey() || f.NeedsLink() {
		t.Error("the fourth blob does not wait for its key")
	}
	f.Cancel(Model)
	f.Cancel(Model)
	want := []string{"first canceled", "second canceled", "third has abcd", "fourth canceled"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
