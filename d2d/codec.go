package d2d

import (
	"encoding/binary"
	"math"

	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// size is the length of n parameters in a snapshot, in bytes.
func size[T wire.Float](c spec.Codec, n int) int { return len(appendVector(c, nil, []T{0})) * n }

// bf16 returns x in the upper 16 bits of a float32.
func bf16(x float32) uint16 {
	b := math.Float32bits(x)
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// quantizer rounds a vector to what the codec carries; nil if it carries all.
func quantizer[T wire.Float](c spec.Codec) func([]T) {
	if c != spec.CodecBFloat16 {
		return nil
	}
	return func(x []T) {
		for i := range x {
			x[i] = T(math.Float32frombits(uint32(bf16(float32(x[i]))) << 16))
		}
	}
}

func appendVector[T wire.Float](c spec.Codec, dst []byte, x []T) []byte {
	if c != spec.CodecBFloat16 {
		return wire.AppendVector(dst, x)
	}
	for _, v := range x {
		dst = binary.LittleEndian.AppendUint16(dst, bf16(float32(v)))
	}
	return dst
}

// decode reads a snapshot of whole parameters into x; the error says that one is not finite.
func decode[T wire.Float](c spec.Codec, x []T, data []byte) error {
	if c != spec.CodecBFloat16 {
		return wire.DecodeVector(x, data)
	}
	for i := range x {
		x[i] = T(math.Float32frombits(uint32(binary.LittleEndian.Uint16(data[2*i:])) << 16))
		if x[i]-x[i] != 0 {
			return wire.ErrNotFinite
		}
	}
	return nil
}
