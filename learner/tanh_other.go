//go:build !amd64 && !arm64

package learner

// tanhPrefixInAssembly returns 0, since this platform has no assembly for tanh; tanhPureGo processes all elements.
func tanhPrefixInAssembly([]float32) int { return 0 }
