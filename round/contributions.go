package round

import (
	"cmp"
	"fmt"
	"sort"

	"github.com/fedmesh/fedmesh/round/rule"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// Contribution is an accepted update and its share in the aggregate.
type Contribution struct {
	Agent        wire.AgentID
	UpdateDigest wire.Digest
	Codec        spec.Codec
	ReportedRisk float64 // risk of the base model on the agent's local data
	Weight       float64
	rule.UpdateMetadata
}

// BuildContributions returns the contributions of the accepted participants in the order of aggregation: by the bucket
// that the seed assigns to each agent, then by agent id.
func BuildContributions(accepted []Participant, plan *Plan, cfg *Config) []Contribution {
	set := make([]Contribution, len(accepted))
	for i, p := range accepted {
		set[i] = Contribution{Agent: p.Agent, UpdateDigest: p.AcceptedUpdateDigest, Codec: p.UpdateCodec,
			ReportedRisk: p.ReportedRisk, Weight: p.Weight,
			UpdateMetadata: rule.UpdateMetadata{
				Bucket: rule.BucketOfAgent(cfg.Seed, p.Agent), DrawCount: p.DrawCount,
				ContributionFactor: plan.ContributionFactor(cfg.WeightPlacement, p.DrawCount, p.Weight, p.Odds),
				Norm:               p.UpdateNorm,
			}}
	}
	sort.Slice(set, func(i, j int) bool { return set[i].Agent < set[j].Agent })
	for i := range set {
		set[i].AgentIDRank = i
	}
	sort.Slice(set, func(i, j int) bool {
		a, b := &set[i], &set[j]
		return cmp.Or(a.Bucket-b.Bucket, a.AgentIDRank-b.AgentIDRank) < 0
	})
	return set
}

// ContributionFactor returns the factor f_k by which the update v_k of agent k is multiplied in the aggregate. Agent k
// was drawn n_k times and has the weight K·p_k. For N draws, the next model is w_i = w_{i−1} + Scale·Σ f_k v_k / N,
// where f_k and Scale depend on the kind of exchange:
//
//	parameters, weighting step:  f_k = n_k, Scale = 1           (ch5, equation (5.11) for Δ; notes, Algorithm 1)
//	parameters, weighting mean:  f_k = n_k·K·p_k, Scale = 1     (w + (K/L) Σ p_k Δ_k)
//	gradients:                   f_k = n_k·K·p_k, Scale = −μ    (lecture, equations (14) and (34))
//
// With importance sampling, f_k is divided by the agent's odds K·q_k, where q_k is the agent's draw probability. Odds
// of 0 are treated as 1.
func (p *Plan) ContributionFactor(weighting spec.WeightPlacement, times int, weight, odds float64) float64 {
	f := float64(times)
	if p.Exchange == spec.ExchangeGradient || weighting == spec.WeightInServerMean {
		f *= weight
	}
	if odds > 0 {
		f /= odds
	}
	return f
}

// UpdateScale returns the factor Scale in the formulas of [Plan.ContributionFactor]: −μ for gradients, where μ is the
// server step size, and 1 for parameters.
func (p *Plan) UpdateScale() float64 {
	if p.Exchange == spec.ExchangeGradient {
		return -p.ServerStepSize
	}
	return 1
}

// StepWeight returns the factor by which an agent with the weight K·p_k scales its local step size. StepWeight returns
// 1 if the weight is applied in the server's average instead.
func (p *Plan) StepWeight(weighting spec.WeightPlacement, weight float64) float64 {
	if weighting == spec.WeightInStepSize && p.Exchange != spec.ExchangeGradient {
		return weight
	}
	return 1
}

// ApplyStep writes the next model w_i = base + step to dst. It adds in float64 and rounds each result once to T. It
// returns an error and leaves dst undefined if a result is not finite, and panics if the three slices differ in length.
func ApplyStep[T wire.Float](dst, base []T, step []float64) error {
	if len(dst) != len(base) || len(dst) != len(step) {
		panic(fmt.Sprintf("round: ApplyStep: dst has %d elements, base has %d, step has %d", len(dst), len(base),
			len(step)))
	}
	for i := range dst {
		x := T(float64(base[i]) + step[i])
		if x-x != 0 {
			return fmt.Errorf("parameter number %d of the new model is %v: %w", i, x, wire.ErrNotFinite)
		}
		dst[i] = x
	}
	return nil
}
