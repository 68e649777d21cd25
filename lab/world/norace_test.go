//go:build !race && !nightly

package world_test

const (
	plans  = 200 // number of plans that TestSeeds runs
	stride = 3   // every stride-th disk operation is tested; 1 with the build tag nightly
)
