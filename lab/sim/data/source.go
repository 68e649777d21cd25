package data

import "math/rand/v2"

// Mix turns two keys into one that looks random: neighbouring seeds, rounds and agents must not have related
// generators. It is the finaliser of SplitMix64 on both in turn.
func Mix(a, b uint64) uint64 { return finalise(finalise(a+golden) + b*golden + golden) }

const golden = 0x9e3779b97f4a7c15

func finalise(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Purposes of a generator: each has its own, so that one more draw for the one changes nothing in the other.
const (
	forOptima uint64 = iota + 1
	forMeans
	forRows
	forPartition
)

// source is the generator of an instance for a purpose, and an agent or 0.
func source(seed, purpose uint64, k int) *rand.Rand {
	return rand.New(rand.NewPCG(Mix(seed, purpose), Mix(purpose, uint64(k))))
}
