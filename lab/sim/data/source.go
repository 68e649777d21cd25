package data

import "math/rand/v2"

// Mix hashes two keys into one, so that neighbouring seeds, rounds and agents have unrelated generators. It applies the
// finaliser of SplitMix64 twice.
func Mix(a, b uint64) uint64 { return finalise(finalise(a+golden) + b*golden + golden) }

const golden = 0x9e3779b97f4a7c15

func finalise(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Each constant is a purpose of random numbers. Every purpose has a separate generator, so that additional draws for
// one do not change another.
const (
	forOptima uint64 = iota + 1
	forMeans
	forRows
	forPartition
)

// source returns the generator for a purpose of an instance and an agent; k is 0 if no agent is involved.
func source(seed, purpose uint64, k int) *rand.Rand {
	return rand.New(rand.NewPCG(Mix(seed, purpose), Mix(purpose, uint64(k))))
}
