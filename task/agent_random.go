package task

import (
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"

	"github.com/fedmesh/fedmesh/wire"
)

// AgentRandomKey returns a number that identifies an agent in random generators: the first 8 bytes of the SHA-256 of
// the agent's id. Callers should keep the result, since hashing is slow.
func AgentRandomKey(agent wire.AgentID) uint64 {
	h := sha256.Sum256([]byte(agent))
	return binary.LittleEndian.Uint64(h[:])
}

// AgentRand returns the random generator of an agent in a round. The parameter stream is the agent's [AgentRandomKey].
// The generator depends only on the arguments, so that a repeated round draws the same numbers.
func AgentRand(seed uint64, round wire.RoundID, stream uint64) *rand.Rand {
	var pcg rand.PCG
	ReseedAgentRand(&pcg, seed, round, stream)
	return rand.New(&pcg)
}

// ReseedAgentRand seeds pcg like the generator of [AgentRand] without allocating memory. Simulators use it to train
// many agents in turn.
func ReseedAgentRand(pcg *rand.PCG, seed uint64, round wire.RoundID, stream uint64) {
	pcg.Seed(mixBits(mixBits(seed)+uint64(round)), stream)
}

// mixBits is the output function of the SplitMix64 generator, which spreads each bit of x over all 64 bits. It makes
// the seeds of successive rounds unrelated.
func mixBits(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// CodecSeed returns the seed for [AgentRand] that determines the random rounding of codecs.
func CodecSeed(seed uint64) uint64 { return seed ^ 0x7061636b } // The constant 0x7061636b is the text "pack" in ASCII.

// PersonalStepsSeed returns the seed for [AgentRand] with which an agent trains its personal model. Since this seed is
// separate, the other random numbers of a round do not change.
// The constant 0x6f776e is the text "own" in ASCII.
func PersonalStepsSeed(seed uint64) uint64 { return mixBits(seed ^ 0x6f776e) }

// RiskSampleSeed returns the seed for selecting the rows on which an agent computes reported risks. The seed is the
// same in all rounds of a run. The parameter stream is the agent's [AgentRandomKey].
func RiskSampleSeed(seed, stream uint64) uint64 { return mixBits(mixBits(seed^0x7269736b) + stream) }
