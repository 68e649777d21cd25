package rule

import "golang.org/x/sys/cpu"

// avx2BlockElements is the number of elements that addScaledAVX2 processes at a time.
const avx2BlockElements = 16

var hasAVX2 = cpu.X86.HasAVX2

// addScaledFast adds f·v to acc for the first elements of v by vector instructions, and returns their number. The
// result is bitwise identical to that of addScaledGo.
func addScaledFast(acc []float64, f float64, v []float32) int {
	n := len(v) / avx2BlockElements * avx2BlockElements
	if !hasAVX2 || n == 0 {
		return 0
	}
	addScaledAVX2(&acc[:n][0], &v[0], n, f)
	return n
}

// addScaledAVX2 adds f·v to acc for n elements; n is a multiple of avx2BlockElements. It multiplies and adds
// separately, since a fused operation would round differently.
//
//go:noescape
func addScaledAVX2(acc *float64, v *float32, n int, f float64)
