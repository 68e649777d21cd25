// Package codec encodes the elements of vectors: updates for the coordinator and snapshots for neighbours. Decoding is
// bitwise identical on every CPU.
//
// The table in this file lists the codecs. A new codec needs a file, an entry there and in wire/update_codecs.go, its
// name in package spec and a paragraph in docs/ALGORITHMS.md. Every codec must pass the suite in conformance_test.go.
package codec

import (
	"fmt"
	"math/rand/v2"

	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// Codec encodes and decodes vectors of T.
type Codec[T wire.Float] interface {
	// IndependentUnitSize returns the size of a unit, a part of a vector that can be decoded independently of other
	// parts. Only the last unit of a vector may have fewer elements. It returns 0, 0 if a vector can only be decoded as
	// a whole.
	IndependentUnitSize() (elements, bytes int)
	// EncodedSize returns the encoded size of n elements, in bytes.
	EncodedSize(n int) int
	// Append appends the encoding of v to dst. All elements of v must be finite. A codec with random rounding draws its
	// random numbers from rng in the order of the elements.
	Append(dst []byte, v []T, rng *rand.Rand) []byte
	// Decode decodes p into dst. The bytes in p must consist of whole units, and their number must be
	// EncodedSize(len(dst)). Decode returns wire.ErrNotFinite if an element is not finite; dst is then invalid.
	Decode(dst []T, p []byte) error
}

func codecByName[T wire.Float]() map[spec.Codec]Codec[T] {
	return map[spec.Codec]Codec[T]{
		spec.CodecRaw:      rawCodec[T]{},
		spec.CodecBFloat16: bfloat16Codec[T]{},
		spec.CodecInt8:     integerCodec[T]{bitsPerElement: 8},
		spec.CodecInt4:     integerCodec[T]{bitsPerElement: 4},
		spec.CodecSigns:    rotatedSignCodec[T]{},
	}
}

// ForName returns the codec with the given name, which must be valid.
func ForName[T wire.Float](word spec.Codec) Codec[T] {
	if share, ok := word.TopKShare(); ok {
		return topKCodec[T]{share}
	}
	return codecByName[T]()[word]
}

// DecodesOnlyWholeVectors reports whether a vector can only be decoded as a whole.
func DecodesOnlyWholeVectors[T wire.Float](c Codec[T]) bool {
	elements, _ := c.IndependentUnitSize()
	return elements == 0
}

// EncodedByteRange returns the byte range that encodes the elements [from, to) of a vector with n elements, and the
// index of the first element in that range. The codec must have independent units.
func EncodedByteRange[T wire.Float](c Codec[T], n, from, to int) (start, end, first int) {
	elements, bytes := c.IndependentUnitSize()
	first = from / elements * elements
	last := min((to+elements-1)/elements*elements, n)
	return first / elements * bytes, c.EncodedSize(last), first
}

func checkEncodedLength(got, want, elements int) error {
	if got != want {
		return fmt.Errorf("encoded vector has %d bytes, but %d bytes are required for %d elements", got, want, elements)
	}
	return nil
}

func notFiniteError(i int, x any) error {
	return fmt.Errorf("element %d is %v: %w", i, x, wire.ErrNotFinite)
}

// rawCodec encodes the elements of type T unchanged, in little-endian order.
type rawCodec[T wire.Float] struct{}

func (c rawCodec[T]) IndependentUnitSize() (elements, bytes int) { return 1, c.EncodedSize(1) }
func (rawCodec[T]) EncodedSize(n int) int                        { return n * wire.ElementSize[T]() }

func (rawCodec[T]) Append(dst []byte, v []T, _ *rand.Rand) []byte { return wire.AppendVector(dst, v) }
func (rawCodec[T]) Decode(dst []T, p []byte) error                { return wire.DecodeVector(dst, p) }
