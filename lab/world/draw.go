package world

import (
	"math/rand/v2"
	"slices"

	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// draws recomputes the participants of a new round from the seed, independently of the coordinator's code. The journal
// does not name the K agents that were eligible. Therefore the check succeeds if any set of K agents explains the
// participants.
func (c *invariantChecker) draws(r round.JournalRecord) {
	cfg, _ := c.w.plan.configure()
	if r.Phase != round.CoordinatorCollecting {
		return
	}
	at, training := version{r.Run, uint64(r.Round)}, r.Plan.Kind == wire.KindTraining
	mixes := cfg.Algorithm == spec.FedDec && training
	if mixes {
		c.fewDraws(cfg.Participants, r)
	}
	if c.opened[at] {
		return
	}
	c.opened[at] = true
	var got []int
	for i, p := range r.Participants {
		if i > 0 && p.Agent <= r.Participants[i-1].Agent {
			c.w.fail("the participants of round %d are not sorted", r.Round)
		}
		got = append(got, slices.Repeat([]int{c.w.agent(p.Agent).number}, p.DrawCount)...)
	}
	rng := rand.New(rand.NewPCG(c.w.plan.Seed, uint64(r.Round)))
	c.drawings++
	if mixes {
		c.mixingDraws(rng, r)
		return
	}
	k, l := r.EligibleAgents, cfg.Participants+cfg.ExtraParticipants
	var want []int
	switch {
	case !training:
		want = first(k)
	// the odds depend on the norms of updates, which are lost at a restart
	case cfg.Sampling == spec.SamplingImportance:
		c.byOdds(r, len(got), l)
		return
	case cfg.Sampling == spec.SamplingWithReplacement:
		for range l {
			want = append(want, rng.IntN(k))
		}
	default:
		want = shuffled(k, min(l, k), rng)
	}
	slices.Sort(want)
	if !c.fromSome(k, got, want) {
		c.w.fail("round %d of %d agents has drawn %v, but the seed gives the indices %v", r.Round, k, got, want)
	}
}

// byOdds checks the number of draws, and the odds of each participant, in a round with importance sampling.
func (c *invariantChecker) byOdds(r round.JournalRecord, drawn, want int) {
	if drawn != want {
		c.w.fail("round %d has %d draws, want %d", r.Round, drawn, want)
	}
	for _, p := range r.Participants {
		if !(p.Odds >= 0.5-1e-9 && p.Odds <= 2+1e-9) {
			c.w.fail("round %d has drawn %s with the invalid odds %v", r.Round, p.Agent, p.Odds)
		}
	}
}

// fromSome reports whether there is a set of k agents that explains the draw. The agents of the set at the positions in
// want must be exactly the agents in got.
func (c *invariantChecker) fromSome(k int, got, want []int) bool {
	for mask := range 1 << c.w.plan.Agents {
		var some []int
		for i := range c.w.plan.Agents {
			if mask>>i&1 == 1 {
				some = append(some, i)
			}
		}
		if len(some) != k {
			continue
		}
		var drawn []int
		for _, i := range want {
			drawn = append(drawn, some[i])
		}
		if slices.Equal(drawn, got) {
			return true
		}
	}
	return false
}

// mixingDraws recomputes the draws of a round with mixing. In such a round, all agents are participants. If an absent
// agent is drawn, the coordinator repeats the draw.
func (c *invariantChecker) mixingDraws(rng *rand.Rand, r round.JournalRecord) {
	times, last := make([]int, len(r.Participants)), false
	for range r.RandomDrawsMade {
		i := rng.IntN(len(r.Participants))
		if last = r.Participants[i].DrawCount > 0; last {
			times[i]++
		}
	}
	for i, p := range r.Participants {
		if p.DrawCount != times[i] || !last {
			c.w.fail("round %d: %s has %d draws, but the seed gives %d of %d", r.Round, p.Agent, p.DrawCount, times[i],
				r.RandomDrawsMade)
		}
	}
}

// fewDraws checks the draws of a round with mixing. If an agent does not send its update, its draws may move to another
// agent. The total number of draws must stay the same, and an agent with an accepted update must keep at least one
// draw.
func (c *invariantChecker) fewDraws(l int, r round.JournalRecord) {
	sum := 0
	for _, p := range r.Participants {
		if sum += p.DrawCount; p.DrawCount == 0 && !p.AcceptedUpdateDigest.IsZero() {
			c.w.fail("round %d: the update of %s is accepted but the agent was not drawn", r.Round, p.Agent)
		}
	}
	if sum != l {
		c.w.fail("round %d: %d draws, want %d", r.Round, sum, l)
	}
}

func first(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

// shuffled returns the first l elements of a random permutation of 0…k−1. If l ≥ k it draws no random numbers.
func shuffled(k, l int, rng *rand.Rand) []int {
	all := first(k)
	for i := 0; i < l && l < k; i++ {
		j := i + rng.IntN(k-i)
		all[i], all[j] = all[j], all[i]
	}
	return all[:l]
}
