//go:build !amd64 && !arm64

package learner

// tanhPrefixInAssembly leaves all elements to tanhPureGo.
func tanhPrefixInAssembly([]float32) int { return 0 }
