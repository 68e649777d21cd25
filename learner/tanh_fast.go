//go:build amd64 || arm64

package learner

import (
	"runtime"

	"golang.org/x/sys/cpu"
)

// tanhVectors says whether the processor has what tanhSmall needs: AVX2, or NEON, which every arm64 has.
var tanhVectors = runtime.GOARCH == "arm64" || cpu.X86.HasAVX2

var tanhTerms = [...]float64{tanh13, tanh11, tanh9, tanh7, tanh5, tanh3}

// tanhFast is tanhPure for the first elements, with the same bits, and returns how many those are: all whole blocks
// before the first that has a number outside ±1/8, or a NaN.
func tanhFast(v []float32) int {
	n := len(v) / tanhBlock * tanhBlock
	if n == 0 || !tanhVectors {
		return 0
	}
	return tanhSmall(&v[0], n, &tanhTerms)
}

// tanhSmall takes n elements, a multiple of tanhBlock that is not 0, and returns how many it did. It multiplies and
// adds apart: a fused operation rounds once.
//
//go:noescape
func tanhSmall(v *float32, n int, terms *[6]float64) (done int)
