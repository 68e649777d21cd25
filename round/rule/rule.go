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

// Rule combines the updates of a round.
type Rule[T wire.Float] interface {
	// Passes is how often the updates are read. A rule of one pass calls Each once, so that the updates need not be
	// kept unless [Share].Most is set. A rule of two may read columns too.
	Passes() int
	// Fold overwrites dst, of length d, with the change D of the model. The result does not depend on the blocks in
	// which the updates are read, and no coordinate of it on the others, so that a model may be folded part by part. An
	// error is ErrTooFew, or one of reading.
	Fold(dst []float64, s Set[T]) error
}

// ErrTooFew says that a round has fewer updates than the rule needs. Such a round is abandoned.
var ErrTooFew = errors.New("too few updates for the rule")

// enough returns ErrTooFew if n draws are fewer than a rule needs.
func enough(name string, n, least int) error {
	if n >= least {
		return nil
	}
	return fmt.Errorf("%w %s: %d draws, want at least %d", ErrTooFew, name, n, least)
}

// Set is the updates of a closed round. Those that were refused or left out are not in it.
type Set[T wire.Float] struct {
	Shares []Share // in the order of the fold: by bucket, then by agent id
	// Scale is D of a single update v that was drawn once, D = Scale·v: 1 for parameters, −μ for gradients.
	Scale float64
	Source[T]
}

// Draws is N = Σ n_k.
func (s *Set[T]) Draws() (n int) {
	for _, u := range s.Shares {
		n += u.Times
	}
	return n
}

// Share is what a rule knows of an update beside its elements.
type Share struct {
	Bucket int
	Times  int     // n_k
	Factor float64 // n_k, or n_k·K·p_k where the server weights
	Norm   float64 // ‖v_k‖₂
	// Most is the norm that the mean counts of v_k at most: a longer one is scaled down to it. 0 = any.
	Most float64
}

// Counted is the norm that the mean counts.
func (s *Share) Counted() float64 {
	if s.Most > 0 {
		return min(s.Norm, s.Most)
	}
	return s.Norm
}

// factor is the factor of v_k in the mean's sum.
func (s *Share) factor() float64 {
	if s.Most > 0 && s.Norm > s.Most {
		return float64(s.Factor * float64(s.Most/s.Norm))
	}
	return s.Factor
}

// Source reads the elements of a set's updates. All are finite.
type Source[T wire.Float] interface {
	// Each calls take with all elements that the source has of each update, in the order of the set. v is valid until
	// take returns.
	Each(take func(k int, v []T)) error
	// Columns fills rows[k] with the elements of update k from that one on.
	Columns(from int, rows [][]T) error
}

// Memory is a source whose updates are in memory.
type Memory[T wire.Float] [][]T

// Each implements Source.
func (m Memory[T]) Each(take func(k int, v []T)) error {
	for k, v := range m {
		take(k, v)
	}
	return nil
}

// Columns implements Source.
func (m Memory[T]) Columns(from int, rows [][]T) error {
	for k, row := range rows {
		copy(row, m[k][from:])
	}
	return nil
}

// Config is the section aggregation, of a coordinator's round and of an experiment.
type Config struct {
	Rule string  `yaml:"rule" json:"rule"`
	Trim float64 `yaml:"trim" json:"trim"` // β of trimmed_mean; 0.2 unless a file has the key
	// Clip is how many times as long as usual an update may be in the mean: a longer one is scaled down; 0 = any.
	Clip float64 `yaml:"clip" json:"clip"`
	// RefuseAbove leaves out updates that are more than this many times as long as usual; 0 = none.
	RefuseAbove float64 `yaml:"refuse_above" json:"refuse_above"`
}

// DefaultConfig is the mean of all updates.
func DefaultConfig() Config { return Config{Rule: Mean, Trim: 0.2} }

// entry is a line of the table.
type entry[T wire.Float] struct {
	make func(Config) Rule[T]
	// check finds what cannot be among the rule's own keys, also where another rule is chosen, and warn says what of
	// them has no effect in rounds of so many draws; nil for a rule that has none.
	check func(c Config, k *spec.Check)
	warn  func(c Config, draws int) string
}

func table[T wire.Float]() map[string]entry[T] {
	return map[string]entry[T]{
		Mean:        {make: newMean[T]},
		TrimmedMean: {newTrimmedMean[T], checkTrim, warnTrim},
	}
}

// Names returns the rules' names, sorted.
func Names() []string { return slices.Sorted(maps.Keys(table[float32]())) }

// Validate returns all problems, joined, each a [*spec.FieldError].
func (c Config) Validate() error {
	var k spec.Check
	spec.OneOf(&k, "rule", c.Rule, Names()...)
	for _, name := range Names() {
		if check := table[float32]()[name].check; check != nil {
			check(c, &k)
		}
	}
	k.Need(c.Clip == 0 || c.Clip >= 1 && !math.IsInf(c.Clip, 1), "clip",
		"must be at least 1, or 0 for any length, is %v", c.Clip)
	k.Need(c.RefuseAbove == 0 || c.RefuseAbove > 1 && !math.IsInf(c.RefuseAbove, 1), "refuse_above",
		"must be above 1, or 0 for none, is %v", c.RefuseAbove)
	return k.Err()
}

// Warning says what of a valid configuration has no effect in rounds of so many draws; "" if there is nothing to say.
func (c Config) Warning(draws int) string {
	if warn := table[float32]()[c.Rule].warn; warn != nil {
		return warn(c, draws)
	}
	return ""
}

// New makes the rule of a valid configuration.
func New[T wire.Float](c Config) Rule[T] { return table[T]()[c.Rule].make(c) }
