package uploads

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fedmesh/fedmesh/codec"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/mqtt/transfer"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// TestCheckOfPackedUpdates checks that the norm of an encoded update is correct for any chunk boundaries. An update
// that is too large or not finite at its end is refused.
func TestCheckOfPackedUpdates(t *testing.T) {
	for _, word := range spec.Codecs() {
		for _, d := range []int{70_001, 70_002} {
			c, rng := codec.ForName[float32](word), rand.New(rand.NewPCG(1, 2))
			for range 3 {
				v := make([]float32, d)
				for i := range v {
					v[i] = float32(rng.NormFloat64())
				}
				p := c.Append(nil, v, rng)
				if err := c.Decode(v, p); err != nil {
					t.Fatal(err)
				}
				checkPacked(t, word, p, d, math.Sqrt(learner.AddSquares(0, v)))
			}
		}
	}
}

// checkPacked checks the norm of an update, and that a non-finite number at its end is detected.
func checkPacked(t *testing.T, word spec.Codec, p []byte, d int, norm float64) {
	t.Helper()
	m, err := wire.NewManifest(p, wire.Digest{})
	if err != nil {
		t.Fatal(err)
	}
	m.Codec = word
	u := wire.Update{Kind: wire.KindTraining, PayloadManifest: m}
	of := func(p []byte) *transfer.MemoryChunkStorage {
		data := transfer.NewMemoryChunkStorage(len(p))
		for k := range wire.ChunkCount(len(p)) {
			if err := data.PutChunk(k, wire.ChunkPayload(p, k)); err != nil {
				t.Fatal(err)
			}
		}
		return data
	}
	got, reason, err := (&Uploads{}).checkUpdate(&u, int64(len(p)), of(p), updateLimits{elementCount: d})
	if err != nil || reason != 0 || got != norm { // the norm must have the same bits as after a restart
		t.Errorf("%s: norm %v, refused %v, error %v; want norm %v", word, got, reason, err, norm)
	}
	short := updateLimits{d, norm / 2}
	if _, reason, err = (&Uploads{}).checkUpdate(&u, int64(len(p)), of(p), short); reason != wire.RefuseNormTooLarge ||
		err != nil {
		t.Errorf("%s: a long one is refused as %v, error %v", word, reason, err)
	}
	bad := slices.Clone(p)
	start := 0
	if _, bytes := codec.ForName[float32](word).IndependentUnitSize(); bytes > 0 {
		start = (len(p) - 1) / bytes * bytes // start of the last unit
	}
	if _, sparse := word.TopKShare(); sparse {
		start = len(p) - 4 // last number of the update, after its index
	}
	copy(bad[start:], []byte{0xff, 0xff, 0xff, 0x7f}[4-min(4, len(p)-start):])
	_, reason, err = (&Uploads{}).checkUpdate(&u, int64(len(p)), of(bad), updateLimits{elementCount: d})
	if reason != wire.RefuseNotFinite || err != nil {
		t.Errorf("%s: a NaN at the end is refused as %v, error %v", word, reason, err)
	}
}

// TestUpdateChangedOnDisk checks that an update is not refused if it changed on the coordinator's disk after it
// arrived. An update that was invalid on arrival is refused.
func TestUpdateChangedOnDisk(t *testing.T) {
	spool, err := store.LocalDisk.OpenSpool(t.TempDir(), store.RoundSpoolID{},
		func(problem string) { t.Error(problem) })
	if err != nil {
		t.Fatal(err)
	}
	defer spool.Close()
	nan := wire.AppendVector(nil, []float32{1, float32(math.NaN())})
	for name, came := range map[string][]byte{"changed": wire.AppendVector(nil, []float32{1, 2}), "came": nan} {
		m, err := wire.NewManifest(came, wire.Digest{})
		if err != nil {
			t.Fatal(err)
		}
		m.Codec = spec.CodecRaw
		data, err := spool.OpenPartialUpdate(name, m.Hash, int64(len(came)), wire.MaxChunkBytes,
			func(k int) [32]byte { return m.ChunkDigests[k] })
		if err == nil {
			err = data.PutChunk(0, nan)
		}
		if err != nil {
			t.Fatal(err)
		}
		offer := &round.UpdateOffer{Agent: wire.AgentID(name), Update: wire.Update{Kind: wire.KindTraining,
			PayloadManifest: m}}
		_, reason, err := (&Uploads{}).checkAndWriteUpdate(spool, offer, data, updateLimits{elementCount: 2})
		if blamed := reason == wire.RefuseNotFinite; blamed != (name == "came") || blamed == (err != nil) {
			t.Errorf("%s: refused as %v, error %v", name, reason, err)
		}
	}
}
