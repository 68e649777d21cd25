package rule

import "golang.org/x/sys/cpu"

// avx2BlockElements is how many elements addScaledAVX2 takes at a time.
const avx2BlockElements = 16

var hasAVX2 = cpu.X86.HasAVX2

// addScaledFast is addScaled for the first elements, with the same bits, and returns how many those are.
func addScaledFast(acc []float64, f float64, v []float32) int {
	n := len(v) / avx2BlockElements * avx2BlockElements
	if !hasAVX2 || n == 0 {
		return 0
	}
	addScaledAVX2(&acc[:n][0], &v[0], n, f)
	return n
}

// addScaledAVX2 takes n elements, a multiple of avx2BlockElements. It multiplies and adds apart: a fused operation
// rounds once.
//
//go:noescape
func addScaledAVX2(acc *float64, v *float32, n int, f float64)
