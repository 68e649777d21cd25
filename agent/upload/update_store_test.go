package upload

import (
	"bytes"
	"testing"

	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/wire"
)

// TestStore checks that a saved update is available after a restart, until the update is released.
func TestStore(t *testing.T) {
	dir := t.TempDir()
	p := newPart(t, dir)
	if p.current != nil {
		t.Errorf("an empty folder has %+v", p.current)
	}
	removed := 0
	remove := func() error { removed++; return nil }
	if p.ReleaseUpdate(0, remove); removed != 1 {
		t.Error("the model's file is not removed")
	}
	u := &part.LocalUpdate{Update: wire.Update{Kind: wire.KindTraining, LocalSteps: 7}, Epoch: 5, Run: 8, Round: 9,
		RequestSequence: p.NextUpdateSequence()}
	if err := u.SetPayload(bytes.Repeat([]byte{1, 2, 3}, 40000), wire.Digest{6}); err != nil {
		t.Fatal(err)
	}
	if err := p.store.saveIfNewest(u); err != nil {
		t.Fatal(err)
	}
	got := newPart(t, dir).current
	if got == nil || got.Epoch != 5 || got.Run != 8 || got.Round != 9 || got.LocalSteps != 7 ||
		got.PayloadManifest.Hash != u.PayloadManifest.Hash || !bytes.Equal(got.PayloadBytes, u.PayloadBytes) {
		t.Errorf("got %+v", got)
	}
	p.ReleaseUpdate(0, remove)
	if got := newPart(t, dir).current; got != nil || removed != 2 {
		t.Errorf("after its removal: %+v", got)
	}
}
