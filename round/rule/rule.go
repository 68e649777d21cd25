package rule

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// Rule aggregates the updates of a round. AssessUpdates must be called before the first AggregatePart of a set.
type Rule[T wire.Float] interface {
	// PassCount returns 1 if the rule reads each element once, with ForEachUpdate. The caller then need not keep the
	// updates unless a MaxNorm is set. PassCount returns 2 if the rule may read elements several times, also with
	// ReadColumns.
	PassCount() int
	// StateVectorNames returns the names of the rule's state vectors. UpdateSet.RuleState contains these vectors; each
	// has the length d of the model. All elements are zero before the first round.
	StateVectorNames() []string
	// AssessUpdates examines whole updates and returns the rule's assessment. Its error is either ErrTooFewUpdates or a
	// read error.
	AssessUpdates(s *UpdateSet[T]) (UpdateAssessment, error)
	// AggregatePart writes coordinates of the result D to dst, starting at the coordinate with the index from, and
	// updates the same part of the rule's state. The result does not depend on the division into parts. An error is a
	// read error.
	AggregatePart(dst []float64, s *UpdateSet[T], from int) error
}

// UpdateAssessment is a rule's assessment of a set of updates, for reports.
type UpdateAssessment struct {
	ExcludedIndices []int // sorted indices of the updates that the rule leaves out
	// OutsideRadiusIndices are the indices of the updates that were clipped because they are farther from the last
	// aggregate than the clipping radius. OutsideRadiusDistances are the distances of these updates.
	OutsideRadiusIndices   []int
	OutsideRadiusDistances []float64
}

// ErrTooFewUpdates means that a round has fewer updates than the rule needs. Such a round is abandoned.
var ErrTooFewUpdates = errors.New("too few updates for the aggregation rule")

// requireDraws returns ErrTooFewUpdates if the number n of draws is smaller than the number least that the named rule
// needs.
func requireDraws(name string, n, least int) error {
	if n >= least {
		return nil
	}
	return fmt.Errorf("%w %s: the round has %d updates, but at least %d are required", ErrTooFewUpdates, name, n, least)
}

// UpdateSet contains the updates of a closed round, without those that were refused or left out.
type UpdateSet[T wire.Float] struct {
	// metadata of each update, in the order of aggregation: by bucket, then by agent id
	Updates []UpdateMetadata
	// UpdateScale is the factor Scale in the model change D = Scale·v for a single update v: 1 for parameters, and −μ
	// for gradients, where μ is the server step size.
	UpdateScale float64
	RuleState   [][]float64 // state vectors that the rule keeps from round to round
	UpdateReader[T]
}

// TotalDrawCount returns N, the sum of the draw counts n_k over all updates k in the set.
func (s *UpdateSet[T]) TotalDrawCount() (n int) {
	for _, u := range s.Updates {
		n += u.DrawCount
	}
	return n
}

// UpdateMetadata describes an update without its elements.
type UpdateMetadata struct {
	Bucket             int
	AgentIDRank        int // position of the agent in the sorted list of agent ids
	DrawCount          int // number n_k of times that the agent was drawn
	ContributionFactor float64
	Norm               float64 // Euclidean norm ‖v_k‖₂ of the update v_k
	// MaxNorm is the norm to which a larger update is scaled down; 0 means no limit.
	MaxNorm float64
}

// ClippedNorm returns the norm of the update after clipping.
func (s *UpdateMetadata) ClippedNorm() float64 {
	if s.MaxNorm > 0 {
		return min(s.Norm, s.MaxNorm)
	}
	return s.Norm
}

// clipFactor returns the factor by which clipping scales the update.
func (s *UpdateMetadata) clipFactor() float64 {
	if s.MaxNorm > 0 && s.Norm > s.MaxNorm {
		return s.MaxNorm / s.Norm
	}
	return 1
}

// UpdateReader reads the elements of a set's updates. All elements are finite.
type UpdateReader[T wire.Float] interface {
	// Len returns d, the number of elements per update.
	Len() int
	// ForEachUpdate calls take with the elements [from, to) of each update k, in the order of the set. The slice v is
	// valid only until take returns.
	ForEachUpdate(from, to int, take func(k int, v []T)) error
	// ReadColumns fills rows[k] with the elements of update k, starting at index from.
	ReadColumns(from int, rows [][]T) error
}

// InMemoryUpdates is an UpdateReader for updates in memory.
type InMemoryUpdates[T wire.Float] [][]T

// Len implements UpdateReader.
func (m InMemoryUpdates[T]) Len() int {
	if len(m) == 0 {
		return 0
	}
	return len(m[0])
}

// ForEachUpdate implements UpdateReader.
func (m InMemoryUpdates[T]) ForEachUpdate(from, to int, take func(k int, v []T)) error {
	for k, v := range m {
		take(k, v[from:to])
	}
	return nil
}

// ReadColumns implements UpdateReader.
func (m InMemoryUpdates[T]) ReadColumns(from int, rows [][]T) error {
	for k, row := range rows {
		copy(row, m[k][from:])
	}
	return nil
}

// Config is the section aggregation in the configuration of a coordinator's round or an experiment.
type Config struct {
	Rule string `yaml:"rule" json:"rule"`
	// share β of the values that the rule trimmed_mean removes at each end; default 0.2
	TrimShare float64 `yaml:"trim" json:"trim"`
	// number f of malicious updates that the rules krum and multi_krum tolerate
	MaxByzantineUpdates int     `yaml:"byzantine" json:"byzantine"`
	AveragedUpdates     int     `yaml:"keep" json:"keep"`     // number of updates that multi_krum averages
	ClippingRadius      float64 `yaml:"radius" json:"radius"` // clipping radius τ of the rule centered_clipping
	// ClipNorm is the norm to which larger updates are scaled down, with any rule; 0 means no limit.
	ClipNorm float64 `yaml:"clip" json:"clip"`
	// ClipAboveFactor is the multiple of the usual norm to which the mean scales larger updates down; 0 means no limit,
	// or a default limit with round.robust.
	ClipAboveFactor float64 `yaml:"clip_above" json:"clip_above"`
	// RefuseAboveFactor is the multiple of the usual norm above which updates are left out; 0 means no limit, or a
	// default limit with round.robust.
	RefuseAboveFactor float64 `yaml:"refuse_above" json:"refuse_above"`
}

// DefaultConfig returns the configuration for the mean of all updates.
func DefaultConfig() Config { return Config{Rule: Mean, TrimShare: 0.2} }

// ruleEntry describes a rule in ruleEntryByName.
type ruleEntry[T wire.Float] struct {
	newRule func(Config) Rule[T]
	// computeMinDraws returns the minimum number of draws that the rule needs in a round; nil means 1.
	computeMinDraws func(c Config) int
	// checkConfigKeys reports invalid values of the rule's own configuration keys, even if another rule is selected.
	// ineffectiveKeyWarning returns a warning about keys that have no effect for a given number of draws. Both
	// functions may be nil.
	checkConfigKeys       func(c Config, k *spec.ProblemList)
	ineffectiveKeyWarning func(c Config, draws int) string
}

func ruleEntryByName[T wire.Float]() map[string]ruleEntry[T] {
	return map[string]ruleEntry[T]{
		Mean:   {newRule: newMean[T]},
		Median: {newRule: newMedian[T]},
		TrimmedMean: {newRule: newTrimmedMean[T], checkConfigKeys: checkTrimShare,
			ineffectiveKeyWarning: trimShareWarning},
		Krum: {newRule: newKrum[T], computeMinDraws: minDrawsOfKrum, checkConfigKeys: checkMaxByzantineUpdates},
		MultiKrum: {newRule: newMultiKrum[T], computeMinDraws: minDrawsOfMultiKrum,
			checkConfigKeys: checkAveragedUpdates},
		GeometricMedian:  {newRule: newGeometricMedian[T]},
		CenteredClipping: {newRule: newCenteredClipping[T], checkConfigKeys: checkClippingRadius},
	}
}

// Names returns the rules' names, sorted.
func Names() []string { return slices.Sorted(maps.Keys(ruleEntryByName[float32]())) }

// Validate returns all configuration errors, joined, each a [*spec.FieldError].
func (c Config) Validate() error {
	var k spec.ProblemList
	spec.RequireOneOf(&k, "rule", c.Rule, Names()...)
	for _, name := range Names() {
		if check := ruleEntryByName[float32]()[name].checkConfigKeys; check != nil {
			check(c, &k)
		}
	}
	k.Require(c.ClipNorm >= 0 && !math.IsInf(c.ClipNorm, 1), "clip", "must be finite and positive, or 0 for no "+
		"limit, but is %v", c.ClipNorm)
	k.Require(c.ClipAboveFactor == 0 || c.ClipAboveFactor >= 1 && !math.IsInf(c.ClipAboveFactor, 1), "clip_above",
		"must be at least 1, or 0 for no limit, but is %v", c.ClipAboveFactor)
	k.Require(c.RefuseAboveFactor == 0 || c.RefuseAboveFactor > 1 && !math.IsInf(c.RefuseAboveFactor, 1),
		"refuse_above",
		"must be above 1, or 0 for no limit, but is %v", c.RefuseAboveFactor)
	return k.Err()
}

// MinDraws returns the minimum number of draws with an update in a round, for a valid configuration. The coordinator
// abandons rounds with fewer draws.
func (c Config) MinDraws() int {
	if least := ruleEntryByName[float32]()[c.Rule].computeMinDraws; least != nil {
		return least(c)
	}
	return 1
}

// CheckDraws reports an error if the rule would abandon every round with at most the given number of draws.
func (c Config) CheckDraws(k *spec.ProblemList, draws int) {
	if least := c.MinDraws(); draws > 0 {
		k.Require(draws >= least, "aggregation.rule", "%s requires at least %d updates per round, but participants "+
			"is %d",
			c.Rule,
			least, draws)
	}
}

// IneffectiveKeyWarning returns a warning about the keys of a valid configuration that have no effect with this number
// of draws. It returns "" if all keys have an effect.
func (c Config) IneffectiveKeyWarning(draws int) string {
	if warn := ruleEntryByName[float32]()[c.Rule].ineffectiveKeyWarning; warn != nil {
		return warn(c, draws)
	}
	return ""
}

// StateVectorCount returns the number of state vectors of the named rule, or 0 for an unknown rule.
func StateVectorCount(name string) int {
	e, ok := ruleEntryByName[float32]()[name]
	if !ok {
		return 0
	}
	return len(e.newRule(DefaultConfig()).StateVectorNames())
}

// New returns the rule of a valid configuration.
func New[T wire.Float](c Config) Rule[T] { return ruleEntryByName[T]()[c.Rule].newRule(c) }

// NewState returns the state of a rule before the first round, for models of length d.
func NewState[T wire.Float](r Rule[T], d int) [][]float64 {
	state := make([][]float64, len(r.StateVectorNames()))
	for i := range state {
		state[i] = make([]float64, d)
	}
	return state
}
