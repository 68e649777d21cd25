package transfer

import (
	"bytes"
	"testing"

	"github.com/fedmesh/fedmesh/wire"
)

// Two seal keys for the test scripts.
var sealKey, otherKey = wire.SealKey{1}, wire.SealKey{2}

// sealedParts returns the messages of a sealed blob by the last levels of their topics.
func sealedParts(t *testing.T, blob []byte, key wire.SealKey) (ref wire.BlobRef, parts map[string][]byte) {
	t.Helper()
	m := manifestOf(blob)
	ref, all := SealedBlobMessages(m, blob, key.BlobSealer(m.Hash))
	parts = map[string][]byte{}
	for name, p := range all {
		parts[name] = p
		if bytes.Contains(p, blob[:16]) || bytes.Contains(p, blob[len(blob)-5:]) {
			t.Errorf("part %s is open", name)
		}
	}
	return ref, parts
}

// TestPullerOpensSeals checks that a part is ignored and requested again if it is not encrypted, or was encrypted with
// another key, for another part or for another blob.
func TestPullerOpensSeals(t *testing.T) {
	blob := blobOf(1, 2*wire.MaxChunkBytes+5)
	ref, parts := sealedParts(t, blob, sealKey)
	_, others := sealedParts(t, blob, otherKey)
	_, open := published(t, blob)
	part := func(name string) PartReceived { return PartReceived{name, parts[name], false} }
	moved := wire.AppendChunkMessage(nil, ref.Hash, 1, parts["0"][wire.ChunkHeaderSize:])
	cfg := DefaultPullerConfig()
	cfg.WindowChunks, cfg.FirstStallTimeout, cfg.MaxStalls, cfg.Sealer = 3, cfg.MaxStallTimeout, 2,
		sealKey.BlobSealer(ref.Hash)
	play(t, openingPuller(NewBlobPuller(cfg, ref, unjittered())), []step[PullEvent]{
		{"0s", Start{}, "sub m 0 1 2", "10s"},
		{"1s", PartReceived{"m", open["m"], false}, "", "10s"},
		{"1s", PartReceived{"m", others["m"], false}, "", "10s"},
		{"1s", part("m"), "", "11s"},
		{"2s", PartReceived{"0", open["0"], false}, "", "11s"},
		{"2s", PartReceived{"0", others["0"], false}, "", "11s"},
		{"2s", PartReceived{"1", moved, false}, "", "11s"},
		{"3s", part("0"), "", "13s"},
		{"4s", part("1"), "", "14s"},
		{"5s", part("2"), "unsub m 0 1 2; done 122837", ""},
	})
}

// TestPullerRefusesAnotherManifest checks that the download fails if the announced manifest cannot be decrypted with
// the key.
func TestPullerRefusesAnotherManifest(t *testing.T) {
	ref, parts := sealedParts(t, blobOf(1, wire.MaxChunkBytes+5), otherKey)
	cfg := DefaultPullerConfig()
	cfg.FirstStallTimeout, cfg.Sealer = cfg.MaxStallTimeout, sealKey.BlobSealer(ref.Hash)
	play(t, openingPuller(NewBlobPuller(cfg, ref, unjittered())), []step[PullEvent]{
		{"0s", Start{}, "sub m 0 1", "10s"},
		{"1s", PartReceived{"m", parts["m"], false}, "unsub m 0 1; failed corrupt", ""},
	})
}

// TestReceiverOpensSeals checks that chunks are accepted only if they are encrypted with the same key as the manifest.
// Chunks of another agent, chunks encrypted with an earlier key and unencrypted chunks are ignored. A repeated manifest
// after a change of the key sets the new key.
func TestReceiverOpensSeals(t *testing.T) {
	sealed := func(key wire.SealKey, k int) ChunkReceived {
		return ChunkReceived{"a", UploadID(m3.Hash), ChunkMessage(m3.Hash, three, k, key.BlobSealer(m3.Hash))}
	}
	offered := func(key wire.SealKey) UpdateOffer {
		return UpdateOffer{Agent: "a", AgentBootEpoch: 1, Manifest: m3, Sealer: key.BlobSealer(m3.Hash)}
	}
	playReceiver(t, map[string][]step[ReceiveEvent]{
		"another key": {
			{"0s", offered(sealKey), "grant a 0-1 for 10000ms", "10s"},
			{"1s", sealed(otherKey, 0), "", "10s"},
			{"1s", c3("a", 0), "", "10s"},
			{"1s", sealed(sealKey, 0), "", "11s"},
			{"2s", offered(otherKey), "grant a 1-1 for 9000ms", "11s"},
			{"3s", sealed(sealKey, 1), "", "11s"},
			{"3s", sealed(otherKey, 1), "grant a 2-2 for 10000ms", "13s"},
			{"4s", sealed(otherKey, 2), "complete a 184248", ""},
		},
		"open": {
			{"0s", offer("a", m3), "grant a 0-1 for 10000ms", "10s"},
			{"1s", sealed(sealKey, 0), "", "10s"},
			{"1s", c3("a", 0), "", "11s"},
		},
	})
}
