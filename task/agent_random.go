package task

import (
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"

	"github.com/fedmesh/fedmesh/wire"
)

// AgentRandomKey is an agent's key among the generators of a round: the first 8 bytes
// of the SHA-256 of its id. It is worth keeping.
func AgentRandomKey(agent wire.AgentID) uint64 {
	h := sha256.Sum256([]byte(agent))
	return binary.LittleEndian.Uint64(h[:])
}

// AgentRand returns the generator of an agent's draws in a round, given
// [AgentRandomKey](agent). It depends on these three only, so that a repeated attempt
// draws the same.
func AgentRand(seed uint64, round wire.RoundID, stream uint64) *rand.Rand {
	var pcg rand.PCG
	ReseedAgentRand(&pcg, seed, round, stream)
	return rand.New(&pcg)
}

// ReseedAgentRand makes pcg the generator that [AgentRand] returns, without memory of its
// own, for a host that trains many agents in turn.
func ReseedAgentRand(pcg *rand.PCG, seed uint64, round wire.RoundID, stream uint64) {
	pcg.Seed(mixBits(mixBits(seed)+uint64(round)), stream)
}

// mixBits is a bijection that spreads every bit of x over the whole word (the
// output function of SplitMix64), so that neighbouring seeds and rounds have
// nothing in common.
func mixBits(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// CodecSeed is the seed, for [AgentRand], of what a codec draws that rounds at random: of an update in its round, of
// snapshots in their block.
func CodecSeed(seed uint64) uint64 { return seed ^ 0x7061636b } // "pack"

// PersonalStepsSeed is the seed, for [AgentRand], of what an agent draws for the steps of a model of its own: the
// round's draws stay what they are without.
func PersonalStepsSeed(seed uint64) uint64 { return mixBits(seed ^ 0x6f776e) } // "own"

// RiskSampleSeed is the seed of the rows on which an agent, given [AgentRandomKey](agent), reports risks: the same in a
// whole run.
func RiskSampleSeed(seed, stream uint64) uint64 { return mixBits(mixBits(seed^0x7269736b) + stream) } // "risk"
