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

// lossyCodec is what a codec does to vectors on their way.
type lossyCodec[T learner.Float] struct {
	codec codec.Codec[T]
	pcg   rand.PCG // of its rounding
	rng   *rand.Rand
	bytes []byte
}

// newPacking returns nil for the codec that changes nothing.
func newPacking[T learner.Float](word spec.Codec) *lossyCodec[T] {
	if word == spec.CodecRaw {
		return nil
	}
	p := &lossyCodec[T]{codec: codec.ForName[T](word)}
	p.rng = rand.New(&p.pcg)
	return p
}

// begin has it draw as a live agent does: of an update in its round, of snapshots in their block.
func (p *lossyCodec[T]) begin(seed uint64, i wire.RoundID, stream uint64) {
	task.ReseedAgentRand(&p.pcg, task.CodecSeed(seed), i, stream)
}

// encodeAndDecode replaces v by what its receivers have.
func (p *lossyCodec[T]) encodeAndDecode(v []T) {
	p.bytes = p.codec.Append(p.bytes[:0], v, p.rng)
	if p.codec.Decode(v, p.bytes) != nil {
		v[0] = T(math.NaN()) // what it goes into is not finite
	}
}
