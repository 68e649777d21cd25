//go:build !race && !nightly

package world_test

const (
	plans  = 200 // that TestSeeds draws
	stride = 3   // between two operations of a disk at which the power goes; each one with the tag nightly
)
