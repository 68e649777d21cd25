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

// packing is what a codec does to vectors on their way.
type packing[T learner.Float] struct {
	codec codec.Codec[T]
	pcg   rand.PCG // of its rounding
	rng   *rand.Rand
	bytes []byte
}

// newPacking returns nil for the codec that changes nothing.
func newPacking[T learner.Float](word spec.Codec) *packing[T] {
	if word == spec.CodecRaw {
		return nil
	}
	p := &packing[T]{codec: codec.ForWord[T](word)}
	p.rng = rand.New(&p.pcg)
	return p
}

// begin has it draw as a live agent does: of an update in its round, of snapshots in their block.
func (p *packing[T]) begin(seed uint64, i wire.RoundID, stream uint64) {
	task.ReseedAgentRand(&p.pcg, task.CodecSeed(seed), i, stream)
}

// pass replaces v by what its receivers have.
func (p *packing[T]) pass(v []T) {
	p.bytes = p.codec.Append(p.bytes[:0], v, p.rng)
	if p.codec.Decode(v, p.bytes) != nil {
		v[0] = T(math.NaN()) // what it goes into is not finite
	}
}
