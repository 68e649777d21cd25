package sim

import (
	"math"
	"math/rand/v2"

	"github.com/fedmesh/fedmesh/codec"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// lossyCodec replaces a vector by the vector that a receiver decodes after lossy compression.
type lossyCodec[T learner.Float] struct {
	codec codec.Codec[T]
	pcg   rand.PCG // generator for the codec's rounding
	rng   *rand.Rand
	bytes []byte
}

// newPacking returns the lossy compression of a codec. newPacking returns nil for the lossless codec.
func newPacking[T learner.Float](word spec.Codec) *lossyCodec[T] {
	if word == spec.CodecRaw {
		return nil
	}
	p := &lossyCodec[T]{codec: codec.ForName[T](word)}
	p.rng = rand.New(&p.pcg)
	return p
}

// begin seeds the random generator in the same way as a live agent does for an update or a snapshot of round i.
func (p *lossyCodec[T]) begin(seed uint64, i wire.RoundID, stream uint64) {
	task.ReseedAgentRand(&p.pcg, task.CodecSeed(seed), i, stream)
}

// encodeAndDecode replaces v by the vector that receivers decode.
func (p *lossyCodec[T]) encodeAndDecode(v []T) {
	p.bytes = p.codec.Append(p.bytes[:0], v, p.rng)
	if p.codec.Decode(v, p.bytes) != nil {
		v[0] = T(math.NaN()) // a NaN makes the aggregate non-finite, which is detected later
	}
}
