// Package codec packs the elements of a vector: an update on its way to the coordinator, a snapshot on its way to a
// neighbour. Decoding gives the same bits on every CPU.
//
// The table in this file names the codecs; a new one costs a file, a line there and in wire/update_codecs.go, its word
// in package spec and a paragraph in docs/ALGORITHMS.md. Every codec must pass the suite in conformance_test.go.
package codec

import (
	"fmt"
	"math/rand/v2"

	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// Codec packs vectors of T.
type Codec[T wire.Float] interface {
	// IndependentUnitSize is the elements and the bytes of what can be decoded on its own. Only the last unit of a
	// vector may have fewer elements. It is 0, 0 where a vector can only be decoded whole.
	IndependentUnitSize() (elements, bytes int)
	// EncodedSize is the length of n packed elements, in bytes.
	EncodedSize(n int) int
	// Append packs v, whose elements must be finite. A codec that rounds at random draws from rng, in the order of the
	// elements.
	Append(dst []byte, v []T, rng *rand.Rand) []byte
	// Decode fills dst from whole units, as many bytes as EncodedSize says. An element that would not be finite is an
	// error, wire.ErrNotFinite, and dst holds rubbish then.
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

// ForName returns the codec of a valid word.
func ForName[T wire.Float](word spec.Codec) Codec[T] {
	if share, ok := word.TopKShare(); ok {
		return topKCodec[T]{share}
	}
	return codecByName[T]()[word]
}

// DecodesOnlyWholeVectors reports whether a vector can only be decoded whole.
func DecodesOnlyWholeVectors[T wire.Float](c Codec[T]) bool {
	elements, _ := c.IndependentUnitSize()
	return elements == 0
}

// EncodedByteRange returns, of a codec with units, which bytes of a packed vector of n elements hold the elements from
// … to − 1, and the first element of the unit that they begin with.
func EncodedByteRange[T wire.Float](c Codec[T], n, from, to int) (start, end, first int) {
	elements, bytes := c.IndependentUnitSize()
	first = from / elements * elements
	last := min((to+elements-1)/elements*elements, n)
	return first / elements * bytes, c.EncodedSize(last), first
}

func checkEncodedLength(got, want, elements int) error {
	if got != want {
		return fmt.Errorf("vector of %d bytes, want %d for %d elements", got, want, elements)
	}
	return nil
}

func notFiniteError(i int, x any) error {
	return fmt.Errorf("element %d is %v: %w", i, x, wire.ErrNotFinite)
}

// rawCodec is T's own elements, little-endian.
type rawCodec[T wire.Float] struct{}

func (c rawCodec[T]) IndependentUnitSize() (elements, bytes int) { return 1, c.EncodedSize(1) }
func (rawCodec[T]) EncodedSize(n int) int                        { return n * wire.ElementSize[T]() }

func (rawCodec[T]) Append(dst []byte, v []T, _ *rand.Rand) []byte { return wire.AppendVector(dst, v) }
func (rawCodec[T]) Decode(dst []T, p []byte) error                { return wire.DecodeVector(dst, p) }
