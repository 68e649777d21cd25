package wire

import "golang.org/x/sys/cpu"

// avx2Block is the number of elements that takeAVX2 reads at once.
const avx2Block = 16

var hasAVX2 = cpu.X86.HasAVX2

// decodeFloatsSIMD decodes the first n elements of dst by vector instructions. It reports whether these elements are
// finite.
func decodeFloatsSIMD(dst []float32, p []byte) (n int, finite bool) {
	n = len(dst) / avx2Block * avx2Block
	if !hasAVX2 || n == 0 {
		return 0, true
	}
	return n, takeAVX2(&dst[0], &p[:4*n][0], n)
}

// takeAVX2 decodes n elements, a multiple of avx2Block, and reports whether all are finite.
//
//go:noescape
func takeAVX2(dst *float32, p *byte, n int) bool
