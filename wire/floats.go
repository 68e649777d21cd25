package wire

import (
	"encoding/binary"
	"math"
)

// encodeFloats writes the elements of v to dst in little-endian order. dst has 4·len(v) bytes.
func encodeFloats(dst []byte, v []float32) {
	for len(v) >= 4 && len(dst) >= 16 {
		p, x := (*[16]byte)(dst), (*[4]float32)(v)
		binary.LittleEndian.PutUint32(p[0:], math.Float32bits(x[0]))
		binary.LittleEndian.PutUint32(p[4:], math.Float32bits(x[1]))
		binary.LittleEndian.PutUint32(p[8:], math.Float32bits(x[2]))
		binary.LittleEndian.PutUint32(p[12:], math.Float32bits(x[3]))
		dst, v = dst[16:], v[4:]
	}
	for i, x := range v {
		binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(x))
	}
}

// decodeFloats decodes dst from p, which has 4·len(dst) bytes, and reports whether all elements are finite.
func decodeFloats(dst []float32, p []byte) bool {
	n, finite := decodeFloatsSIMD(dst, p)
	return finite && decodeFloatsPortable(dst[n:], p[4*n:])
}

// decodeFloatsPortable implements decodeFloats without assembly.
func decodeFloatsPortable(dst []float32, p []byte) bool {
	const notFinite = 0xFF << 24 // bits of an infinite number after its sign bit was shifted out
	largest := uint32(0)
	for len(dst) >= 4 && len(p) >= 16 {
		x, b := (*[4]float32)(dst), (*[16]byte)(p)
		u0, u1 := binary.LittleEndian.Uint32(b[0:]), binary.LittleEndian.Uint32(b[4:])
		u2, u3 := binary.LittleEndian.Uint32(b[8:]), binary.LittleEndian.Uint32(b[12:])
		x[0], x[1] = math.Float32frombits(u0), math.Float32frombits(u1)
		x[2], x[3] = math.Float32frombits(u2), math.Float32frombits(u3)
		largest = max(largest, u0<<1, u1<<1, u2<<1, u3<<1)
		dst, p = dst[4:], p[16:]
	}
	for i := range dst {
		u := binary.LittleEndian.Uint32(p[4*i:])
		dst[i] = math.Float32frombits(u)
		largest = max(largest, u<<1)
	}
	return largest < notFinite
}
