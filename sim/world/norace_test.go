//go:build !race

package world_test

const (
	plans  = 200 // that TestSeeds draws
	stride = 1   // between two operations of a disk at which the power goes
)
