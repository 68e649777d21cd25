//go:build !race && !nightly

package world_test

const (
	plans  = 200 // number of plans in TestSeeds
	stride = 3   // distance between tested disk operations; 1 with the tag nightly
)
