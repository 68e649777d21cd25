package wire

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
)

// ErrNotFinite is the error for a NaN or infinite number in a field that must be finite.
var ErrNotFinite = errors.New("not a finite number")

// DType is the element type (data type) of a tensor.
type DType uint8

// The element types.
const (
	Float32 DType = iota + 1
	Float64
)

// Size returns the size of one element in bytes.
func (d DType) Size() int {
	if d == Float64 {
		return 8
	}
	return 4
}

// String returns the name of the type in safetensors.
func (d DType) String() string {
	if d == Float64 {
		return "F64"
	}
	return "F32"
}

// TensorSpec describes one tensor of a flat vector.
type TensorSpec struct {
	Name  string
	DType DType
	Shape []uint32
}

// TensorSchema lists the tensors of a flat vector in order. Two vectors may be averaged only if their schemas have the
// same hash.
type TensorSchema []TensorSpec

// Hash returns the SHA-256 of the schema's encoding.
func (s TensorSchema) Hash() Digest {
	var w writer
	w.u16(uint16(len(s)))
	for _, t := range s {
		w.tensorSpec(&t)
	}
	return sha256.Sum256(w.encoded)
}

func (w *writer) tensorSpec(t *TensorSpec) {
	w.str(t.Name)
	w.u8(uint8(t.DType))
	w.u8(uint8(len(t.Shape)))
	for _, n := range t.Shape {
		w.u32(n)
	}
}

// ElementCount returns the total number of elements of all tensors.
func (s TensorSchema) ElementCount() int {
	total := 0
	for _, t := range s {
		n := 1
		for _, d := range t.Shape {
			n *= int(d)
		}
		total += n
	}
	return total
}

// VectorByteCount returns the length of the encoded vector in bytes.
func (s TensorSchema) VectorByteCount() int {
	if len(s) == 0 {
		return 0
	}
	return s.ElementCount() * s[0].DType.Size()
}

// Float is the element type of a vector in memory.
type Float interface{ ~float32 | ~float64 }

// AppendVector appends the elements of v to dst in little-endian order, each with the size of T.
func AppendVector[T Float](dst []byte, v []T) []byte {
	size, from := ElementSize[T](), len(dst)
	dst = slices.Grow(dst, size*len(v))[:from+size*len(v)]
	p := dst[from:]
	if x, ok := any(v).([]float32); ok {
		encodeFloats(p, x)
	} else if size == 4 {
		for i, x := range v {
			binary.LittleEndian.PutUint32(p[4*i:], math.Float32bits(float32(x)))
		}
	} else {
		for i, x := range v {
			binary.LittleEndian.PutUint64(p[8*i:], math.Float64bits(float64(x)))
		}
	}
	return dst
}

// DecodeVector decodes all elements of dst from p, which is in little-endian order. It returns an error if the lengths
// do not match or an element is not finite; dst is then undefined.
func DecodeVector[T Float](dst []T, p []byte) error {
	size := ElementSize[T]()
	if len(p) != size*len(dst) {
		return fmt.Errorf("vector has %d bytes, but %d bytes are required for %d elements",
			len(p), size*len(dst), len(dst))
	}
	if x, ok := any(dst).([]float32); ok {
		if decodeFloats(x, p) {
			return nil
		}
	}
	if size == 4 {
		for i := range dst {
			x := math.Float32frombits(binary.LittleEndian.Uint32(p[4*i:]))
			if x-x != 0 {
				return fmt.Errorf("element %d is %v: %w", i, x, ErrNotFinite)
			}
			dst[i] = T(x)
		}
		return nil
	}
	for i := range dst {
		x := math.Float64frombits(binary.LittleEndian.Uint64(p[8*i:]))
		if x-x != 0 {
			return fmt.Errorf("element %d is %v: %w", i, x, ErrNotFinite)
		}
		dst[i] = T(x)
	}
	return nil
}

// ElementSize returns the size in bytes of an encoded element of T.
func ElementSize[T Float]() int {
	// 1 + 2⁻³⁰ can be represented in float64 but not in float32.
	if x := T(1) + T(1.0/(1<<30)); x == 1 {
		return 4
	}
	return 8
}
