//go:build amd64 || arm64

package learner

import (
	"math"
	"runtime"

	"golang.org/x/sys/cpu"
)

// hasTanhAssembly says whether the processor has what tanhSmall needs: AVX2, or NEON, which every arm64 has.
var hasTanhAssembly = runtime.GOARCH == "arm64" || cpu.X86.HasAVX2

var tanhTerms = [...]float64{tanh13, tanh11, tanh9, tanh7, tanh5, tanh3}

// tanhBlock is how many elements tanhSmall takes at a time.
const tanhBlock = 8

// tanhPrefixInAssembly is tanhPureGo for the first elements, with the same bits, and returns how many those are.
func tanhPrefixInAssembly(v []float32) int {
	if !hasTanhAssembly {
		return 0
	}
	n := len(v) / tanhBlock * tanhBlock
	for at := 0; at < n; at += tanhBlock {
		if at += tanhSmall(&v[at], n-at, &tanhTerms); at < n {
			for i, x := range v[at:][:tanhBlock] {
				if !usesTanhSeries(x) { // what was small is still small
					v[at+i] = float32(math.Tanh(float64(x)))
				}
			}
		}
	}
	return n
}

// tanhSmall takes small numbers, of n elements, a multiple of tanhBlock that is not 0, up to the end of the first block
// that has others, which it leaves. It returns where that block begins; n if there is none. It multiplies and adds
// apart: a fused operation rounds once.
//
//go:noescape
func tanhSmall(v *float32, n int, terms *[6]float64) (at int)
