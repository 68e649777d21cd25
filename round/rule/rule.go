package rule

import (
	"maps"
	"math"
	"slices"

	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// Rule combines the updates of a round.
type Rule[T wire.Float] interface {
	// Fold overwrites dst, of length d, with the change D of the model. The result does not depend on the blocks in
	// which the updates are read. An error is one of reading.
	Fold(dst []float64, s Set[T]) error
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
}

// Source reads the elements of a set's updates. All are finite.
type Source[T wire.Float] interface {
	// Each calls take with each update, whole, in the order of the set. v is valid until take returns.
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
	Trim float64 `yaml:"trim" json:"trim"` // β of trimmed_mean
	// RefuseAbove leaves out updates that are longer than this many times the median of the round's; 0 = none.
	RefuseAbove float64 `yaml:"refuse_above" json:"refuse_above"`
}

// DefaultConfig is the mean of all updates.
func DefaultConfig() Config { return Config{Rule: Mean} }

// entry is a line of the table.
type entry[T wire.Float] struct {
	make     func(Config) Rule[T]
	weighted bool                          // it takes the agents' weights p_k; else they must be equal
	check    func(c Config, k *spec.Check) // of the keys that are the rule's own
}

func table[T wire.Float]() map[string]entry[T] {
	return map[string]entry[T]{
		Mean:        {make: newMean[T], weighted: true, check: noTrim},
		TrimmedMean: {make: newTrimmedMean[T], check: checkTrim},
	}
}

// Names returns the rules' names, sorted.
func Names() []string { return slices.Sorted(maps.Keys(table[float32]())) }

// Validate returns all problems, joined, each a [*spec.FieldError].
func (c Config) Validate() error {
	var k spec.Check
	spec.OneOf(&k, "rule", c.Rule, Names()...)
	if e, ok := table[float32]()[c.Rule]; ok {
		e.check(c, &k)
	}
	k.Need(c.RefuseAbove == 0 || c.RefuseAbove > 1 && !math.IsInf(c.RefuseAbove, 1), "refuse_above",
		"must be above 1, or 0 for none, is %v", c.RefuseAbove)
	return k.Err()
}

// Weighted reports whether the rule takes the agents' weights p_k. One that does not needs equal weights.
func (c Config) Weighted() bool { return table[float32]()[c.Rule].weighted }

// New makes the rule of a valid configuration.
func New[T wire.Float](c Config) Rule[T] { return table[T]()[c.Rule].make(c) }
