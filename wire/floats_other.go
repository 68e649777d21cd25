//go:build !amd64

package wire

// decodeFloatsSIMD decodes no elements on this architecture.
func decodeFloatsSIMD([]float32, []byte) (n int, finite bool) { return 0, true }
