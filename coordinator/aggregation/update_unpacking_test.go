package aggregation

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/codec"
	"github.com/fedmesh/fedmesh/coordinator/publish"
	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// wideBench returns an Aggregator with a model larger than a strip, whose agents use the given codec. It also returns
// the spool of round 9 and its folder.
func wideBench(t *testing.T, word spec.Codec) (*Aggregator, *store.UpdateSpool, string) {
	t.Helper()
	d, err := runs.OpenStateFolder(store.LocalDisk, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w := &Aggregator{cfg: Config{Round: round.DefaultConfig()}, folder: d, now: time.Now,
		RetryWrite: func(_ string, write func() error) error { return write() }}
	wide := wire.Task{
		Name: "wide", Features: []string{"x"}, TargetColumn: "y",
		Model: wire.ModelSpec{HiddenUnits: []uint32{strip/2 + 5}, Outputs: 1, Activation: spec.ActivationTanh,
			Risk: spec.LossSquared},
		Training: wire.TrainingSettings{ExchangeKind: spec.ExchangeParameters, UpdateCodec: word, BatchSize: 1,
			StepSize:      0.1,
			MinLocalSteps: 1, MaxLocalSteps: 1, StepTimeBudgetMillis: 1000},
	}
	err = errors.Join(w.compileTaskAndOpenHeldOut(wide, wide.AppendEncoding(nil)), os.MkdirAll(filepath.Join(d.Dir,
		runs.SpoolDir), 0o700))
	dir := d.SpoolPath(9)
	spool, opened := store.LocalDisk.OpenSpool(dir, store.RoundSpoolID{}, func(string) {})
	if err := errors.Join(err, opened); err != nil {
		t.Fatal(err)
	}
	w.baseModelBlob = publish.Blob{Data: make([]byte, w.compiledTask.UpdateSchema(wire.KindTraining).VectorByteCount())}
	t.Cleanup(func() { _ = errors.Join(spool.Close(), d.Close()) })
	return w, spool, dir
}

// putPacked puts an update with its signed manifest into a spool.
func putPacked(t *testing.T, spool *store.UpdateSpool, id wire.AgentID, word spec.Codec, p []byte) {
	t.Helper()
	m, err := wire.NewManifest(p, wire.Digest{})
	if err != nil {
		t.Fatal(err)
	}
	m.Codec = word
	u := wire.Update{Kind: wire.KindTraining, PayloadManifest: m, RiskBefore: 0.75}
	h := wire.Header{Root: wire.FirstRootVersion, Type: wire.TypeUpdate, Federation: "plant", Sender: id, Epoch: 1,
		Run:   7,
		Round: 9, Sequence: 1}
	meta := wire.SignEnvelope(nil, h, u.Body(), ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)))
	e := store.SpoolEntry{Agent: string(id), PayloadDigest: m.Hash, PayloadSize: int64(len(p)), SignedManifest: meta}
	if err := spool.Put(e, p); err != nil {
		t.Fatal(err)
	}
}

// TestUnpack checks the aggregation of updates that can only be decoded as a whole, with a raw update among them. It
// also simulates a process that was killed while decoding, and checks that no temporary files remain.
func TestUnpack(t *testing.T) {
	for _, word := range spec.Codecs() {
		c, rng := codec.ForName[float32](word), rand.New(rand.NewPCG(1, 2))
		if !codec.DecodesOnlyWholeVectors(c) {
			continue
		}
		w, spool, dir := wideBench(t, word)
		if err := os.MkdirAll(filepath.Join(dir, "unpacked", "torn"), 0o700); err != nil {
			t.Fatal(err)
		}
		var set []round.Contribution
		var whole [][]float32
		for k := range 4 {
			v := make([]float32, len(w.baseModelBlob.Data)/4)
			for i := range v {
				v[i] = float32(rng.NormFloat64())
			}
			p, by := c.Append(nil, v, rng), word
			if k == 2 {
				p, by = wire.AppendVector(nil, v), spec.CodecRaw
			}
			if err := codec.ForName[float32](by).Decode(v, p); err != nil {
				t.Fatal(err)
			}
			id := wire.AgentID(fmt.Sprint("a", k))
			putPacked(t, spool, id, by, p)
			set, whole = append(set, round.Contribution{Agent: id, Codec: by}), append(whole, v)
		}
		norms, err := w.SpooledUpdates(spool, wire.KindTraining)
		if err != nil {
			t.Fatal(err)
		}
		set = set[1:] // leave out one update
		all, done, err := w.unpackSpool(9, spool, set)
		if err != nil {
			t.Fatal(err)
		}
		u := w.newSpooledUpdateReader(all, set)
		for k, x := range set {
			want := math.Sqrt(learner.AddSquares(0, whole[k+1]))
			if norms[x.Agent].Norm != want {
				t.Errorf("%s: after a restart the norm of %s is %v, want %v", word, x.Agent, norms[x.Agent].Norm, want)
			}
		}
		err = u.forEachStrip(func(from, to int) error {
			return u.ForEachUpdate(from, to, func(k int, v []float32) {
				if !slices.Equal(v, whole[k+1][from:to]) {
					t.Errorf("%s: update %d differs from element %d on", word, k+1, from)
				}
			})
		})
		rows := [][]float32{make([]float32, 9), make([]float32, 9), make([]float32, 9)}
		if err := errors.Join(err, u.ReadColumns(strip-4, rows)); err != nil {
			t.Fatal(err)
		}
		for k, row := range rows {
			if !slices.Equal(row, whole[k+1][strip-4:strip+5]) {
				t.Errorf("%s: columns of update %d differ", word, k+1)
			}
		}
		done()
		if _, err := os.Stat(filepath.Join(dir, "unpacked")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: what was unpacked is left behind: %v", word, err)
		}
	}
}

// TestSpooledUpdates checks that after a restart the norm, codec and reported risk of updates are read from the spool.
// An update with a damaged manifest is omitted and can be stored again.
func TestSpooledUpdates(t *testing.T) {
	w, spool, _ := wideBench(t, spec.CodecSigns)
	log := strings.Builder{}
	w.cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	v := make([]float32, len(w.baseModelBlob.Data)/4)
	v[3] = 2
	raw := wire.AppendVector(nil, v)
	putPacked(t, spool, "a", spec.CodecRaw, raw)
	bad := store.SpoolEntry{Agent: "b", PayloadDigest: wire.BlobDigest(raw), PayloadSize: int64(len(raw)),
		SignedManifest: []byte("no envelope")}
	if err := spool.Put(bad, raw); err != nil {
		t.Fatal(err)
	}
	got, err := w.SpooledUpdates(spool, wire.KindTraining)
	want := map[wire.AgentID]round.SpooledUpdate{"a": {UpdateDigest: wire.BlobDigest(raw), Norm: 2,
		Codec: spec.CodecRaw, RiskBefore: 0.75}}
	if err != nil || !maps.Equal(got, want) || !strings.Contains(log.String(), "agent=b") {
		t.Errorf("got %+v, %v, want %+v; log %s", got, err, want, log.String())
	}
	putPacked(t, spool, "b", spec.CodecRaw, raw)
}

// TestUnpackDamaged checks that an update changed on the coordinator's disk ends the aggregation without blaming an
// agent.
func TestUnpackDamaged(t *testing.T) {
	w, spool, dir := wideBench(t, spec.CodecSigns)
	v := make([]float32, len(w.baseModelBlob.Data)/4)
	v[3] = 1
	p := codec.ForName[float32](spec.CodecSigns).Append(nil, v, rand.New(rand.NewPCG(1, 2)))
	putPacked(t, spool, "a", spec.CodecSigns, p)
	logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil || len(logs) != 1 {
		t.Fatal(logs, err)
	}
	damage(t, logs[0], func(p []byte) { p[0] ^= 1 })
	set := []round.Contribution{{Agent: "a", Codec: spec.CodecSigns}}
	if _, done, err := w.unpackSpool(9, spool, set); !errors.Is(err, round.ErrSpoolDamaged) {
		t.Errorf("unpacked: %v", err)
	} else {
		done()
	}
}
