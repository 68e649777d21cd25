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

// Rule combines the updates of a round. Weigh comes before the first Fold of a set.
type Rule[T wire.Float] interface {
	// Passes is how often the updates are read. A rule of one pass reads each element once, by Each, so that the
	// updates need not be kept unless [UpdateMetadata].Most is set. A rule of two may read more often, and columns too.
	Passes() int
	// StateVectorNames names the vectors of length d that its state is of, which a set has in State. All are zero
	// before the first round.
	StateVectorNames() []string
	// AssessUpdates looks at the updates whole, and says what the rule makes of them. An error is ErrTooFew, or one of
	// reading.
	AssessUpdates(s *UpdateSet[T]) (Assessment, error)
	// AggregatePart overwrites dst with the coordinates of the change D of the model from that one on, and the same
	// part of the state. The result does not depend on the parts in which a model is folded. The error is one of
	// reading.
	AggregatePart(dst []float64, s *UpdateSet[T], from int) error
}

// Assessment is what a rule makes of the updates of a set as a whole, for people.
type Assessment struct {
	ExcludedIndices []int // places of the updates that it leaves out, in order
	// FarIndices are the places of those that are farther than the radius from the last aggregate, and count as if they
	// were not; Distances are theirs.
	FarIndices   []int
	FarDistances []float64
}

// ErrTooFew says that a round has fewer updates than the rule needs. Such a round is abandoned.
var ErrTooFew = errors.New("too few updates for the rule")

// requireDraws returns ErrTooFew if n draws are fewer than a rule needs.
func requireDraws(name string, n, least int) error {
	if n >= least {
		return nil
	}
	return fmt.Errorf("%w %s: %d draws, want at least %d", ErrTooFew, name, n, least)
}

// UpdateSet is the updates of a closed round. Those that were refused or left out are not in it.
type UpdateSet[T wire.Float] struct {
	Updates []UpdateMetadata // in the order of the fold: by bucket, then by agent id
	// Scale is D of a single update v that was drawn once, D = Scale·v: 1 for parameters, −μ for gradients.
	Scale float64
	State [][]float64 // of the rule
	Source[T]
}

// Draws is N = Σ n_k.
func (s *UpdateSet[T]) Draws() (n int) {
	for _, u := range s.Updates {
		n += u.DrawCount
	}
	return n
}

// UpdateMetadata is what a rule knows of an update beside its elements.
type UpdateMetadata struct {
	Bucket    int
	Rank      int     // the place of its agent in the order of ids
	DrawCount int     // n_k
	Factor    float64 // n_k, or n_k·K·p_k where the server weights
	Norm      float64 // ‖v_k‖₂
	// MaxNorm is the norm that counts of v_k at most: a longer one is scaled down to it. 0 = any.
	MaxNorm float64
}

// CountedNorm is the norm that counts.
func (s *UpdateMetadata) CountedNorm() float64 {
	if s.MaxNorm > 0 {
		return min(s.Norm, s.MaxNorm)
	}
	return s.Norm
}

// countedFraction is the part of v_k that counts.
func (s *UpdateMetadata) countedFraction() float64 {
	if s.MaxNorm > 0 && s.Norm > s.MaxNorm {
		return s.MaxNorm / s.Norm
	}
	return 1
}

// Source reads the elements of a set's updates. All are finite.
type Source[T wire.Float] interface {
	// Len is d, how many elements each update has.
	Len() int
	// Each calls take with the elements from … to−1 of each update, in the order of the set. v is valid until take
	// returns.
	Each(from, to int, take func(k int, v []T)) error
	// Columns fills rows[k] with the elements of update k from that one on.
	Columns(from int, rows [][]T) error
}

// MemorySource is a source whose updates are in memory.
type MemorySource[T wire.Float] [][]T

// Len implements Source.
func (m MemorySource[T]) Len() int {
	if len(m) == 0 {
		return 0
	}
	return len(m[0])
}

// Each implements Source.
func (m MemorySource[T]) Each(from, to int, take func(k int, v []T)) error {
	for k, v := range m {
		take(k, v[from:to])
	}
	return nil
}

// Columns implements Source.
func (m MemorySource[T]) Columns(from int, rows [][]T) error {
	for k, row := range rows {
		copy(row, m[k][from:])
	}
	return nil
}

// Config is the section aggregation, of a coordinator's round and of an experiment.
type Config struct {
	Rule            string  `yaml:"rule" json:"rule"`
	TrimShare       float64 `yaml:"trim" json:"trim"`           // β of trimmed_mean; 0.2 unless a file has the key
	Byzantine       int     `yaml:"byzantine" json:"byzantine"` // f of krum and multi_krum
	AveragedUpdates int     `yaml:"keep" json:"keep"`           // how many updates multi_krum averages
	ClippingRadius  float64 `yaml:"radius" json:"radius"`       // τ of centered_clipping, a norm
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

// ruleEntry is a line of the table.
type ruleEntry[T wire.Float] struct {
	newRule func(Config) Rule[T]
	// minDraws is how many draws a round has at least; nil = 1.
	minDraws func(c Config) int
	// checkKeys finds what cannot be among the rule's own keys, also where another rule is chosen, and warn says what
	// of them has no effect in rounds of so many draws; nil for a rule that has none.
	checkKeys             func(c Config, k *spec.ProblemList)
	ineffectiveKeyWarning func(c Config, draws int) string
}

func table[T wire.Float]() map[string]ruleEntry[T] {
	return map[string]ruleEntry[T]{
		Mean:             {newRule: newMean[T]},
		Median:           {newRule: newMedian[T]},
		TrimmedMean:      {newRule: newTrimmedMean[T], checkKeys: checkTrim, ineffectiveKeyWarning: trimShareWarning},
		Krum:             {newRule: newKrum[T], minDraws: minDrawsOfKrum, checkKeys: checkByzantine},
		MultiKrum:        {newRule: newMultiKrum[T], minDraws: minDrawsOfMultiKrum, checkKeys: checkAveragedUpdates},
		GeometricMedian:  {newRule: newGeometricMedian[T]},
		CenteredClipping: {newRule: newCenteredClipping[T], checkKeys: checkRadius},
	}
}

// Names returns the rules' names, sorted.
func Names() []string { return slices.Sorted(maps.Keys(table[float32]())) }

// Validate returns all problems, joined, each a [*spec.FieldError].
func (c Config) Validate() error {
	var k spec.ProblemList
	spec.OneOf(&k, "rule", c.Rule, Names()...)
	for _, name := range Names() {
		if check := table[float32]()[name].checkKeys; check != nil {
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
	if least := table[float32]()[c.Rule].minDraws; least != nil {
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

// Warning says what of a valid configuration has no effect in rounds of so many draws; "" if there is nothing to say.
func (c Config) Warning(draws int) string {
	if warn := table[float32]()[c.Rule].ineffectiveKeyWarning; warn != nil {
		return warn(c, draws)
	}
	return ""
}

// StateVectorCount is of how many vectors the state of the rule with that name is; 0 if there is none.
func StateVectorCount(name string) int {
	e, ok := table[float32]()[name]
	if !ok {
		return 0
	}
	return len(e.newRule(DefaultConfig()).StateVectorNames())
}

// New makes the rule of a valid configuration.
func New[T wire.Float](c Config) Rule[T] { return table[T]()[c.Rule].newRule(c) }

// NewState returns the state of a rule before the first round, for models of length d.
func NewState[T wire.Float](r Rule[T], d int) [][]float64 {
	state := make([][]float64, len(r.StateVectorNames()))
	for i := range state {
		state[i] = make([]float64, d)
	}
	return state
}
