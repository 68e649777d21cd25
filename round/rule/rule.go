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

// Rule combines the updates of a round. AssessUpdates comes before the first AggregatePart of a set.
type Rule[T wire.Float] interface {
	// PassCount is how often the updates are read. A rule with PassCount 1 reads each element once, with ForEachUpdate,
	// so the caller need not keep the updates unless MaxCountedNorm of one is set. A rule with 2 may read them several
	// times, also with ReadColumns.
	PassCount() int
	// StateVectorNames names the vectors of length d that its state is of, which a set has in State. All are zero
	// before the first round.
	StateVectorNames() []string
	// AssessUpdates looks at the updates whole, and says what the rule makes of them. An error is ErrTooFewUpdates, or
	// one of reading.
	AssessUpdates(s *UpdateSet[T]) (UpdateAssessment, error)
	// AggregatePart overwrites dst with the coordinates of the change D of the model from that one on, and the same
	// part of the state. The result does not depend on the parts in which a model is folded. The error is one of
	// reading.
	AggregatePart(dst []float64, s *UpdateSet[T], from int) error
}

// UpdateAssessment is what a rule makes of the updates of a set as a whole, for people.
type UpdateAssessment struct {
	ExcludedIndices []int // places of the updates that it leaves out, in order
	// OutsideRadiusIndices are the places of those that are farther than the radius from the last aggregate, and count
	// as if they were not; OutsideRadiusDistances are their distances.
	OutsideRadiusIndices   []int
	OutsideRadiusDistances []float64
}

// ErrTooFewUpdates says that a round has fewer updates than the rule needs. Such a round is abandoned.
var ErrTooFewUpdates = errors.New("too few updates for the rule")

// requireDraws returns ErrTooFewUpdates if n draws are fewer than a rule needs.
func requireDraws(name string, n, least int) error {
	if n >= least {
		return nil
	}
	return fmt.Errorf("%w %s: %d draws, want at least %d", ErrTooFewUpdates, name, n, least)
}

// UpdateSet is the updates of a closed round. Those that were refused or left out are not in it.
type UpdateSet[T wire.Float] struct {
	Updates []UpdateMetadata // in the order of the fold: by bucket, then by agent id
	// UpdateScale is D of a single update v that was drawn once, D = Scale·v: 1 for parameters, −μ for gradients.
	UpdateScale float64
	RuleState   [][]float64 // of the rule
	UpdateReader[T]
}

// TotalDrawCount is N = Σ n_k.
func (s *UpdateSet[T]) TotalDrawCount() (n int) {
	for _, u := range s.Updates {
		n += u.DrawCount
	}
	return n
}

// UpdateMetadata is what a rule knows of an update beside its elements.
type UpdateMetadata struct {
	Bucket             int
	AgentIDRank        int     // the place of its agent in the order of ids
	DrawCount          int     // n_k
	ContributionFactor float64 // n_k, or n_k·K·p_k where the server weights
	Norm               float64 // ‖v_k‖₂
	// MaxCountedNorm is the norm that counts of v_k at most: a longer one is scaled down to it. 0 = any.
	MaxNorm float64
}

// ClippedNorm is the norm that counts.
func (s *UpdateMetadata) ClippedNorm() float64 {
	if s.MaxNorm > 0 {
		return min(s.Norm, s.MaxNorm)
	}
	return s.Norm
}

// clipFactor is the part of v_k that counts.
func (s *UpdateMetadata) clipFactor() float64 {
	if s.MaxNorm > 0 && s.Norm > s.MaxNorm {
		return s.MaxNorm / s.Norm
	}
	return 1
}

// UpdateReader reads the elements of a set's updates. All are finite.
type UpdateReader[T wire.Float] interface {
	// Len is d, how many elements each update has.
	Len() int
	// ForEachUpdate calls take with the elements from … to−1 of each update, in the order of the set. v is valid until
	// take returns.
	ForEachUpdate(from, to int, take func(k int, v []T)) error
	// ReadColumns fills rows[k] with the elements of update k from that one on.
	ReadColumns(from int, rows [][]T) error
}

// InMemoryUpdates is a source whose updates are in memory.
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

// Config is the section aggregation, of a coordinator's round and of an experiment.
type Config struct {
	Rule                string  `yaml:"rule" json:"rule"`
	TrimShare           float64 `yaml:"trim" json:"trim"`           // β of trimmed_mean; 0.2 unless a file has the key
	MaxByzantineUpdates int     `yaml:"byzantine" json:"byzantine"` // f of krum and multi_krum
	AveragedUpdates     int     `yaml:"keep" json:"keep"`           // how many updates multi_krum averages
	ClippingRadius      float64 `yaml:"radius" json:"radius"`       // τ of centered_clipping, a norm
	// ClipNorm is the norm that counts of an update at most, with any rule: a longer one is scaled down; 0 = any.
	ClipNorm float64 `yaml:"clip" json:"clip"`
	// ClipAboveFactor is how many times as long as usual an update may be in the mean, likewise; 0 = any length.
	// A coordinator with round.robust replaces a 0 of ClipAboveFactor and RefuseAboveFactor by its own bounds.
	ClipAboveFactor float64 `yaml:"clip_above" json:"clip_above"`
	// RefuseAboveFactor leaves out updates that are more than this many times as long as usual; 0 = none.
	RefuseAboveFactor float64 `yaml:"refuse_above" json:"refuse_above"`
}

// DefaultConfig is the mean of all updates.
func DefaultConfig() Config { return Config{Rule: Mean, TrimShare: 0.2} }

// ruleEntry is a line of ruleEntryByName.
type ruleEntry[T wire.Float] struct {
	newRule func(Config) Rule[T]
	// computeMinDraws is how many draws a round has at least; nil = 1.
	computeMinDraws func(c Config) int
	// checkConfigKeys finds what cannot be among the rule's own keys, also where another rule is chosen, and
	// ineffectiveKeyWarning says what of them has no effect in rounds of so many draws; nil for a rule that has none.
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

// Validate returns all problems, joined, each a [*spec.FieldError].
func (c Config) Validate() error {
	var k spec.ProblemList
	spec.RequireOneOf(&k, "rule", c.Rule, Names()...)
	for _, name := range Names() {
		if check := ruleEntryByName[float32]()[name].checkConfigKeys; check != nil {
			check(c, &k)
		}
	}
	k.Require(c.ClipNorm >= 0 && !math.IsInf(c.ClipNorm, 1), "clip", "must be a norm, or 0 for any, is %v", c.ClipNorm)
	k.Require(c.ClipAboveFactor == 0 || c.ClipAboveFactor >= 1 && !math.IsInf(c.ClipAboveFactor, 1), "clip_above",
		"must be at least 1, or 0 for any length, is %v", c.ClipAboveFactor)
	k.Require(c.RefuseAboveFactor == 0 || c.RefuseAboveFactor > 1 && !math.IsInf(c.RefuseAboveFactor, 1),
		"refuse_above",
		"must be above 1, or 0 for none, is %v", c.RefuseAboveFactor)
	return k.Err()
}

// MinDraws is how many draws with an update a round of a valid configuration must have: with fewer it is abandoned.
func (c Config) MinDraws() int {
	if least := ruleEntryByName[float32]()[c.Rule].computeMinDraws; least != nil {
		return least(c)
	}
	return 1
}

// CheckDraws refuses a configuration for rounds of that many draws at most, which would all be abandoned.
func (c Config) CheckDraws(k *spec.ProblemList, draws int) {
	if least := c.MinDraws(); draws > 0 {
		k.Require(draws >= least, "aggregation.rule", "%s needs rounds of %d updates or more; participants is %d",
			c.Rule,
			least, draws)
	}
}

// IneffectiveKeyWarning says what of a valid configuration has no effect in rounds of so many draws; "" if there is
// nothing to say.
func (c Config) IneffectiveKeyWarning(draws int) string {
	if warn := ruleEntryByName[float32]()[c.Rule].ineffectiveKeyWarning; warn != nil {
		return warn(c, draws)
	}
	return ""
}

// StateVectorCount is of how many vectors the state of the rule with that name is; 0 if there is none.
func StateVectorCount(name string) int {
	e, ok := ruleEntryByName[float32]()[name]
	if !ok {
		return 0
	}
	return len(e.newRule(DefaultConfig()).StateVectorNames())
}

// New makes the rule of a valid configuration.
func New[T wire.Float](c Config) Rule[T] { return ruleEntryByName[T]()[c.Rule].newRule(c) }

// NewState returns the state of a rule before the first round, for models of length d.
func NewState[T wire.Float](r Rule[T], d int) [][]float64 {
	state := make([][]float64, len(r.StateVectorNames()))
	for i := range state {
		state[i] = make([]float64, d)
	}
	return state
}
