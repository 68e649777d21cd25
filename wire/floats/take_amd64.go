package floats

import "golang.org/x/sys/cpu"

// block is how many elements takeAVX2 takes at a time.
const block = 16

var fast = cpu.X86.HasAVX2

// takeFast is take for the first elements, and returns how many those are, and whether all of them are finite.
func takeFast(dst []float32, p []byte) (n int, finite bool) {
	n = len(dst) / block * block
	if !fast || n == 0 {
		return 0, true
	}
	return n, takeAVX2(&dst[0], &p[:4*n][0], n)
}

// takeAVX2 takes n elements, a multiple of block, and reports whether all are finite.
//
//go:noescape
func takeAVX2(dst *float32, p *byte, n int) bool
