package aggregation

import (
	"path/filepath"

	"github.com/fedmesh/fedmesh/codec"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// packedSpool is a spool whose updates are all encoded with the same codec.
type packedSpool struct {
	*store.UpdateSpool
	codec codec.Codec[float32]
}

// wrapPackedSpool combines a round's spool with the codec of the task.
func (w *Aggregator) wrapPackedSpool(s *store.UpdateSpool) packedSpool {
	return packedSpool{s, codec.ForName[float32](w.compiledTask.Task.Training.UpdateCodec)}
}

// unpackSpool returns a spool whose updates can be read in strips. If the codec can only decode whole vectors,
// unpackSpool decodes the updates into a temporary spool within the round's spool. The caller must call done to remove
// the temporary spool. After a restart the updates are decoded again.
func (w *Aggregator) unpackSpool(r wire.RoundID, spool *store.UpdateSpool, set []round.Contribution) (all packedSpool,
	done func(), err error) {
	all, done = w.wrapPackedSpool(spool), func() {}
	if !codec.DecodesOnlyWholeVectors(all.codec) {
		return all, done, nil
	}
	dir := filepath.Join(w.folder.SpoolPath(r), "unpacked")
	var raw *store.UpdateSpool
	err = w.RetryWrite("unpack the updates", func() error {
		err := w.folder.Disk.RemoveAll(dir)
		if err == nil {
			raw, err = w.folder.Disk.OpenSpool(dir, store.RoundSpoolID{Round: uint64(r)}, func(string) {})
		}
		return err
	})
	if err != nil {
		return all, done, err
	}
	done = func() { // If removal fails, the spool is removed with the round's spool.
		_ = raw.Close()
		_ = w.folder.Disk.RemoveAll(dir)
	}
	var out []byte
	err = w.forEachUnpackedUpdate(spool, set, func(k int, v []float32) error {
		out = wire.AppendVector(out[:0], v)
		return w.RetryWrite("unpack the updates", func() error {
			return raw.Put(store.SpoolEntry{Agent: string(set[k].Agent), PayloadDigest: set[k].UpdateDigest,
				PayloadSize: int64(len(out))}, out)
		})
	})
	return packedSpool{raw, codec.ForName[float32](spec.CodecRaw)}, done, err
}

// forEachUnpackedUpdate decodes the update of each contribution and passes its elements v to take. v is valid until
// take returns.
func (w *Aggregator) forEachUnpackedUpdate(spool *store.UpdateSpool, set []round.Contribution,
	take func(k int, v []float32) error) error {
	var payload []byte
	v := make([]float32, w.compiledTask.UpdateSchema(wire.KindTraining).ElementCount())
	for k, x := range set {
		p, err := spool.ReadPayload(string(x.Agent), payload)
		if err == nil {
			payload = p
			err = codec.ForName[float32](x.Codec).Decode(v, p)
		}
		if err != nil { // An error means damage, since the update was valid on arrival.
			return wrapSpoolReadError(x.Agent, err)
		}
		if err := take(k, v); err != nil {
			return err
		}
	}
	return nil
}
