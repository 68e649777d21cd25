package coordinator

import (
	"bytes"
	"crypto/ed25519"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/coordinator/aggregation"
	"github.com/fedmesh/fedmesh/wire"
)

// TestLargestAnnouncement checks that an announcement with all optional parts fits into a message, as docs/PROTOCOL.md
// states.
func TestLargestAnnouncement(t *testing.T) {
	full := func(n int) wire.BlobRef {
		data := bytes.Repeat([]byte{1}, n)
		return wire.BlobRef{Hash: wire.BlobDigest(data), Length: uint32(n), Inline: data}
	}
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	a := wire.Announcement{Attempt: 1, Phase: wire.PhaseOpen, Kind: wire.KindTraining,
		Task: full(aggregation.InlineTask), BaseModel: full(wire.MaxInlineBlobBytes),
		LastRoundOutcome:    full(inlineOutcome),
		InitialCreditChunks: 4}
	var drawn []wire.SelectedAgent
	for n := 1; wire.EncodedSelectionSize(n, false) <= wire.MaxSelectionBytes; n++ {
		drawn = append(drawn, wire.SelectedAgent{Key: wire.SelectionKey{byte(n), byte(n >> 8)},
			StepSizeWeight: float64(n)})
	}
	a.Selection = wire.NewAgentSelection(wire.AnnouncementPosition{}, 1, drawn)
	sealed := wire.SignEnvelope(nil, wire.Header{Root: wire.FirstRootVersion, Type: wire.TypeAnnouncement,
		Federation: wire.FederationName(strings.Repeat("f", 32)), Sender: wire.CoordinatorID}, a.Body(), key)
	const most = 62 << 10 // limit in docs/PROTOCOL.md, in bytes
	if len(sealed) > most || len(sealed) > wire.MaxMessage || len(sealed) < most-1<<10 {
		t.Errorf("%d bytes, want at most %d, and not 1 KiB less", len(sealed), most)
	}
	e, err := wire.ParseEnvelope(sealed)
	if err == nil {
		_, err = wire.DecodeAnnouncement(e.Body)
	}
	if err != nil {
		t.Error(err)
	}
}
