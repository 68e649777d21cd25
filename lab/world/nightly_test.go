//go:build !race && nightly

package world_test

const (
	plans  = 200
	stride = 1
)
