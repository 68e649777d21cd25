//go:build !amd64

package rule

// addScaledFast returns 0, since this platform has no vector instructions for addScaled; addScaledGo processes all
// elements.
func addScaledFast([]float64, float64, []float32) int { return 0 }
