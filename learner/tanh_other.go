//go:build !amd64 && !arm64

package learner

// tanhFast leaves all elements to tanhPure.
func tanhFast([]float32) int { return 0 }
