//go:build amd64 || arm64

package learner

import (
	"math"
	"runtime"

	"golang.org/x/sys/cpu"
)

// hasTanhAssembly reports whether the processor supports tanhSmall, which needs AVX2 or NEON (present on every arm64).
var hasTanhAssembly = runtime.GOARCH == "arm64" || cpu.X86.HasAVX2

var tanhTerms = [...]float64{tanh13, tanh11, tanh9, tanh7, tanh5, tanh3}

// tanhBlock is the number of elements that tanhSmall processes at a time.
const tanhBlock = 8

// tanhPrefixInAssembly replaces small values at the beginning of v by their tanh, and returns the number of values
// replaced. The result is bitwise identical to that of tanhPureGo.
func tanhPrefixInAssembly(v []float32) int {
	if !hasTanhAssembly {
		return 0
	}
	n := len(v) / tanhBlock * tanhBlock
	for at := 0; at < n; at += tanhBlock {
		if at += tanhSmall(&v[at], n-at, &tanhTerms); at < n {
			for i, x := range v[at:][:tanhBlock] {
				// Replace only the larger values here, since tanhSmall has already replaced the small ones.
				if !usesTanhSeries(x) {
					v[at+i] = float32(math.Tanh(float64(x)))
				}
			}
		}
	}
	return n
}

// tanhSmall replaces small values in n elements by their tanh; n is a non-zero multiple of tanhBlock. It stops before
// the first block that contains a larger value and returns the index of that block, or n. It multiplies and adds
// separately, since a fused operation would round differently.
//
//go:noescape
func tanhSmall(v *float32, n int, terms *[6]float64) (at int)
