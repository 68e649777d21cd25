//go:build !amd64

package wire

// decodeFloatsSIMD decodes no elements, since this architecture has no vector instructions for it.
func decodeFloatsSIMD([]float32, []byte) (n int, finite bool) { return 0, true }
