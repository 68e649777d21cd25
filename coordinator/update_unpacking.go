package coordinator

import (
	"path/filepath"

	"github.com/fedmesh/fedmesh/codec"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// packedSpool is the updates of a spool, and how they are packed: all alike.
type packedSpool struct {
	*store.Spool
	codec codec.Codec[float32]
}

// packedSpoolOf says how the updates of a round's spool are packed.
func (w *modelState) packedSpoolOf(s *store.Spool) packedSpool {
	return packedSpool{s, codec.ForName[float32](w.compiledTask.Task.Training.Codec)}
}

// unpack returns the updates of a set as a fold reads them: in strips. Those of a codec whose vectors can only be
// unpacked whole it unpacks one after the other into a spool of raw updates inside the round's, which a fold after a
// restart makes anew. Such a round may have raw updates as well, which come along. done removes it.
func (w *modelState) unpack(r wire.RoundID, spool *store.Spool, set []round.Contribution) (all packedSpool, done func(),
	err error) {
	all, done = w.packedSpoolOf(spool), func() {}
	if !codec.DecodesOnlyWhole(all.codec) {
		return all, done, nil
	}
	dir := filepath.Join(w.stateFolder.SpoolPath(r), "unpacked")
	var raw *store.Spool
	err = w.retryWrite("unpack the updates", func() error {
		err := w.stateFolder.Disk.RemoveAll(dir)
		if err == nil {
			raw, err = w.stateFolder.Disk.OpenSpool(dir, store.SpoolID{Round: uint64(r)}, func(string) {})
		}
		return err
	})
	if err != nil {
		return all, done, err
	}
	done = func() { // else it goes with the round's
		_ = raw.Close()
		_ = w.stateFolder.Disk.RemoveAll(dir)
	}
	in := map[wire.AgentID]bool{}
	for _, x := range set {
		in[x.Agent] = true
	}
	var out []byte
	err = w.forEachUnpacked(spool, func(e store.SpoolEntry, v []float32) error {
		if !in[wire.AgentID(e.Agent)] {
			return nil
		}
		out = wire.AppendVector(out[:0], v)
		return w.retryWrite("unpack the updates", func() error {
			return raw.Put(store.SpoolEntry{Agent: e.Agent, Digest: e.Digest, Size: int64(len(out))}, out)
		})
	})
	return packedSpool{raw, codec.ForName[float32](spec.CodecRaw)}, done, err
}

// forEachUnpacked passes each update of a spool to take, unpacked. v is valid until it returns.
func (w *modelState) forEachUnpacked(spool *store.Spool, take func(e store.SpoolEntry, v []float32) error) error {
	var payload []byte
	v := make([]float32, w.compiledTask.Schema(wire.KindTraining).Len())
	for _, e := range spool.Entries() {
		p, err := spool.Payload(e.Agent, payload)
		if err == nil {
			payload = p
			err = codec.ForName[float32](w.codecOf(&e)).Decode(v, p)
		}
		if err != nil { // it was decoded when it came
			return spoolReadError(wire.AgentID(e.Agent), err)
		}
		if err := take(e, v); err != nil {
			return err
		}
	}
	return nil
}

// codecOf is an update's codec, as its signed manifest in the spool names it.
func (w *modelState) codecOf(e *store.SpoolEntry) spec.Codec {
	envelope, err := wire.ParseEnvelope(e.SignedManifest)
	if err != nil {
		return w.compiledTask.Task.Training.Codec
	}
	u, err := wire.DecodeUpdate(envelope.Body)
	if err != nil {
		return w.compiledTask.Task.Training.Codec
	}
	return u.Payload.Codec
}
