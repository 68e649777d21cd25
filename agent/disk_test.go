package agent

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

func TestDisk(t *testing.T) {
	dir := t.TempDir()
	if o, d, err := loadObeyed(dir); o != (wire.Order{}) || !d.IsZero() || err != nil {
		t.Errorf("an empty folder has %v %v, %v", o, d, err)
	}
	if u, err := loadUpdate(dir); u != nil || err != nil {
		t.Errorf("an empty folder has %+v, %v", u, err)
	}
	if err := removeRound(dir); err != nil {
		t.Error(err)
	}
	order, digest := wire.Order{Epoch: 1, Run: 2, Round: 3, Attempt: 4, Phase: wire.PhaseOpen}, wire.Digest{5}
	if err := saveObeyed(dir, order, digest); err != nil {
		t.Fatal(err)
	}
	if o, d, err := loadObeyed(dir); o != order || d != digest || err != nil {
		t.Errorf("got %v %v, %v", o, d, err)
	}
	u := &update{Update: wire.Update{Kind: wire.KindTraining, LocalSteps: 7}, run: 8, round: 9}
	if err := u.take(bytes.Repeat([]byte{1, 2, 3}, 40000), wire.Digest{6}); err != nil {
		t.Fatal(err)
	}
	if err := saveUpdate(dir, u); err != nil {
		t.Fatal(err)
	}
	got, err := loadUpdate(dir)
	if err != nil || got.run != 8 || got.round != 9 || got.LocalSteps != 7 || got.Payload.Hash != u.Payload.Hash || !bytes.Equal(got.payload, u.payload) {
		t.Errorf("got %+v, %v", got, err)
	}
	if err := removeRound(dir); err != nil {
		t.Error(err)
	}
	if got, err := loadUpdate(dir); got != nil || err != nil {
		t.Errorf("after its removal: %+v, %v", got, err)
	}
}

// A record that is whole and makes no sense is an error, not a panic.
func TestDiskRubbish(t *testing.T) {
	for _, n := range []int{0, 1, 15, 16, 19, 20, 21, 60, 61, 62, 120} {
		dir := t.TempDir()
		body := bytes.Repeat([]byte{0xff}, n)
		for _, file := range []string{obeyedFile, updateFile} {
			if err := store.SaveRecord(filepath.Join(dir, file), fileVersion, body); err != nil {
				t.Fatal(err)
			}
		}
		if _, _, err := loadObeyed(dir); n != 29+32 && err == nil {
			t.Errorf("%d bytes are an order", n)
		}
		if u, err := loadUpdate(dir); err == nil {
			t.Errorf("%d bytes are an update: %+v", n, u)
		}
		if err := os.WriteFile(filepath.Join(dir, obeyedFile), body, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := loadObeyed(dir); err == nil {
			t.Errorf("%d bytes without a checksum are an order", n)
		}
	}
}
