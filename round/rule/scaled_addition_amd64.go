package rule

import "golang.org/x/sys/cpu"

// block is how many elements addScaledAVX2 takes at a time.
const block = 16

var fast = cpu.X86.HasAVX2

// addScaledFast is addScaled for the first elements, with the same bits, and returns how many those are.
func addScaledFast(acc []float64, f float64, v []float32) int {
	n := len(v) / block * block
	if !fast || n == 0 {
		return 0
	}
	addScaledAVX2(&acc[:n][0], &v[0], n, f)
	return n
}

// addScaledAVX2 takes n elements, a multiple of block. It multiplies and adds apart: a fused operation rounds once.
//
//go:noescape
func addScaledAVX2(acc *float64, v *float32, n int, f float64)
