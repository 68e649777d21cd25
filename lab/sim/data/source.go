package data

import "math/rand/v2"

// Mix hashes two keys into one key, so that the random generators of neighbouring seeds, rounds and agents are
// unrelated. Mix applies the finaliser of the generator SplitMix64 twice.
func Mix(a, b uint64) uint64 { return finalise(finalise(a+golden) + b*golden + golden) }

const golden = 0x9e3779b97f4a7c15

func finalise(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Purposes of random numbers. Every purpose has a separate generator, so that additional draws for one purpose do not
// change the draws for another purpose.
const (
	forOptima uint64 = iota + 1
	forMeans
	forRows
	forPartition
)

// source returns the random generator for a purpose in an instance. k is the index of the agent, or 0 if no agent is
// involved.
func source(seed, purpose uint64, k int) *rand.Rand {
	return rand.New(rand.NewPCG(Mix(seed, purpose), Mix(purpose, uint64(k))))
}
