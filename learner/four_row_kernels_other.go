//go:build !amd64 && !arm64

package learner

// useFourRowKernels does nothing, since only amd64 and arm64 have assembly kernels for four rows.
func (k *vectorKernels[T]) useFourRowKernels() {}
