package rule_test

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/round/rule"
	"github.com/fedmesh/fedmesh/wire"
)

// configs contains the tested configurations of each aggregation rule. The suite fails for a rule without an entry.
var configs = map[string][]rule.Config{
	rule.Mean:             {{}},
	rule.Median:           {{}},
	rule.TrimmedMean:      {{TrimShare: 0.2}, {TrimShare: 0}, {TrimShare: 0.49}},
	rule.Krum:             {{}, {MaxByzantineUpdates: 1}},
	rule.MultiKrum:        {{AveragedUpdates: 1}, {MaxByzantineUpdates: 1, AveragedUpdates: 4}},
	rule.GeometricMedian:  {{}},
	rule.CenteredClipping: {{ClippingRadius: 1}, {ClippingRadius: 3000}},
}

// alone lists the rules that compute each coordinate of the result only from the values of the same coordinate.
// anyOrder lists those rules in alone whose result does not depend on the order of the updates.
var (
	alone    = []string{rule.Mean, rule.Median, rule.TrimmedMean}
	anyOrder = []string{rule.Median, rule.TrimmedMean}
)

// eachRule calls try once for each configuration of each aggregation rule.
func eachRule(t *testing.T, try func(t *testing.T, c rule.Config)) {
	for _, name := range rule.Names() {
		if len(configs[name]) == 0 || oracles[name] == nil {
			t.Errorf("rule %s: add it to configs and to oracles", name)
		}
		for _, c := range configs[name] {
			c.Rule = name
			if err := c.Validate(); err != nil {
				t.Error(err)
			}
			t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) { try(t, c) })
		}
	}
}

// setOf returns n random updates of length d in the order of aggregation. Some agents were drawn twice.
func setOf[T wire.Float](rng *rand.Rand, n, d int) (rule.UpdateSet[T], []wire.AgentID) {
	var ids []wire.AgentID
	for k := range n {
		ids = append(ids, wire.AgentID(fmt.Sprint("a", k)))
	}
	byID := slices.Sorted(slices.Values(ids))
	slices.SortFunc(ids, func(a, b wire.AgentID) int {
		return cmp.Or(rule.BucketOfAgent(7, a)-rule.BucketOfAgent(7, b), cmp.Compare(a, b))
	})
	set, rows := rule.UpdateSet[T]{UpdateScale: 1}, rule.InMemoryUpdates[T]{}
	for _, id := range ids {
		times := 1 + rng.IntN(2)
		row, squares := make([]T, d), 0.0
		for j := range row {
			row[j] = T(rng.NormFloat64() * math.Pow(10, float64(rng.IntN(7)-3)))
			squares += float64(row[j]) * float64(row[j])
		}
		set.Updates = append(set.Updates, rule.UpdateMetadata{Bucket: rule.BucketOfAgent(7, id),
			AgentIDRank: slices.Index(byID, id),
			DrawCount:   times, ContributionFactor: float64(times), Norm: math.Sqrt(squares)})
		rows = append(rows, row)
	}
	set.UpdateReader = rows
	return set, ids
}

// folded aggregates a set of updates in parts of the given number of elements. If the set has no rule state, folded
// uses the rule's initial state.
func folded[T wire.Float](c rule.Config, set *rule.UpdateSet[T], d, part int) ([]float64, rule.UpdateAssessment,
	error) {
	r := rule.New[T](c)
	if set.RuleState == nil {
		set.RuleState = rule.NewState(r, d)
	}
	dst := make([]float64, d)
	for j := range dst {
		dst[j] = math.NaN() // Fill dst with NaN, to check that the rule overwrites every element.
	}
	w, err := r.AssessUpdates(set)
	for from := 0; from < d && err == nil; from += part {
		err = r.AggregatePart(dst[from:min(from+part, d)], set, from)
	}
	return dst, w, err
}

func fold[T wire.Float](t *testing.T, c rule.Config, set rule.UpdateSet[T], d int) []float64 {
	t.Helper()
	dst, _, err := folded(c, &set, d, d)
	if err != nil {
		t.Fatal(err)
	}
	return dst
}

// TestOracle compares each rule with an independent implementation, for various numbers of coordinates and updates and
// for two rule states.
func TestOracle(t *testing.T) {
	eachRule(t, func(t *testing.T, c rule.Config) {
		rng := rand.New(rand.NewPCG(1, 2))
		for _, n := range []int{1, 2, 3, 5, 10, 64, 150} {
			for _, d := range []int{1, 2, 63, 64, 65, 200} {
				set, _ := setOf[float64](rng, n, d)
				set.RuleState = rule.NewState(rule.New[float64](c), d)
				for _, v := range set.RuleState {
					for j := range v {
						v[j] = rng.NormFloat64() * float64(n%2)
					}
				}
				before := pointsOf(&set)
				got, _, err := folded(c, &set, d, d)
				if set.TotalDrawCount() < c.MinDraws() {
					if !errors.Is(err, rule.ErrTooFewUpdates) {
						t.Fatalf("of %d draws: error %v", set.TotalDrawCount(), err)
					}
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				want := oracles[c.Rule](c, before)
				for j := range d {
					size := 0.0
					for _, p := range append(before.v, before.state) {
						if p != nil {
							size += math.Abs(p[j])
						}
					}
					if math.Abs(got[j]-want[j]) > 1e-13*size {
						t.Fatalf("n %d, d %d, coordinate %d: %v, want %v", n, d, j, got[j], want[j])
					}
					if len(set.RuleState) > 0 && set.RuleState[0][j] != got[j] {
						t.Fatalf("n %d, d %d, coordinate %d: the state is %v, want the aggregate %v", n, d, j,
							set.RuleState[0][j], got[j])
					}
				}
			}
		}
	})
}

// TestParts checks that aggregating a vector in parts gives bitwise the same model and rule state as aggregating it at
// once.
func TestParts(t *testing.T) {
	eachRule(t, func(t *testing.T, c rule.Config) {
		const d = 1<<15 + 7 // number of elements; a rule reads fewer elements of an update at a time
		set, _ := setOf[float32](rand.New(rand.NewPCG(19, 20)), 5, d)
		want, _, err := folded(c, &set, d, d)
		if err != nil {
			t.Fatal(err)
		}
		state := set.RuleState
		for _, part := range []int{1 << 15, 1000} {
			set.RuleState = nil
			got, _, err := folded(c, &set, d, part)
			if err != nil || !slices.Equal(got, want) || !slices.EqualFunc(set.RuleState, state,
				slices.Equal[[]float64]) {
				t.Errorf("in parts of %d another fold, error %v", part, err)
			}
		}
	})
}

// narrow is an UpdateReader that reads columns in small pieces and counts how many columns were requested.
type narrow[T wire.Float] struct {
	rule.InMemoryUpdates[T]
	asked []int
}

func (s *narrow[T]) ReadColumns(from int, rows [][]T) error {
	for j := range rows[0] {
		s.asked[from+j]++
	}
	return s.InMemoryUpdates.ReadColumns(from, rows)
}

// TestBlocks checks that a rule that reads updates by columns reads each column once, even if there are several blocks
// of columns and the last block is short.
func TestBlocks(t *testing.T) {
	eachRule(t, func(t *testing.T, c rule.Config) {
		first := configs[c.Rule][0]
		if first.Rule = c.Rule; c != first {
			return // Test only one configuration per rule, since a block has a million elements.
		}
		const n, d = 40, 1<<20/40*2 + 7
		set, _ := setOf[float32](rand.New(rand.NewPCG(3, 4)), n, d)
		source := &narrow[float32]{set.UpdateReader.(rule.InMemoryUpdates[float32]), make([]int, d)}
		whole := fold(t, c, set, d)
		set.UpdateReader = source
		if got := fold(t, c, set, d); !slices.Equal(got, whole) {
			t.Error("another fold of the same set")
		}
		if slices.Max(source.asked) > 1 || slices.Max(source.asked) != slices.Min(source.asked) {
			t.Errorf("columns are read %d to %d times", slices.Min(source.asked), slices.Max(source.asked))
		}
		if !slices.Contains(alone, c.Rule) {
			return
		}
		// Check that a column that is aggregated alone gives the same result as in a block.
		for _, j := range []int{0, 1<<20/40 - 1, 1 << 20 / 40, d - 1} {
			one := rule.UpdateSet[float32]{Updates: set.Updates, UpdateScale: 1}
			var rows rule.InMemoryUpdates[float32]
			for _, row := range source.InMemoryUpdates {
				rows = append(rows, row[j:j+1])
			}
			one.UpdateReader = rows
			if got := fold(t, c, one, 1); got[0] != whole[j] {
				t.Errorf("coordinate %d alone is %v, among others %v", j, got[0], whole[j])
			}
		}
	})
}

// once is an UpdateReader that counts the elements per update read by ForEachUpdate, and the calls of ReadColumns.
type once struct {
	rule.InMemoryUpdates[float32]
	whole, columns int
}

func (s *once) ForEachUpdate(from, to int, take func(k int, v []float32)) error {
	s.whole += to - from
	buffer := make([]float32, to-from)
	for k, v := range s.InMemoryUpdates {
		copy(buffer, v[from:to])
		take(k, buffer)
		clear(buffer) // Overwrite the slice, since the rule must not use it after take has returned.
	}
	return nil
}

func (s *once) ReadColumns(from int, rows [][]float32) error {
	s.columns++
	return s.InMemoryUpdates.ReadColumns(from, rows)
}

// TestPasses checks that a rule with a PassCount of 1 reads each update once and reads no norm, so that the caller need
// not keep updates in memory.
func TestPasses(t *testing.T) {
	eachRule(t, func(t *testing.T, c rule.Config) {
		set, _ := setOf[float32](rand.New(rand.NewPCG(13, 14)), 12, 5)
		want := fold(t, c, set, 5)
		source := &once{InMemoryUpdates: set.UpdateReader.(rule.InMemoryUpdates[float32])}
		set.UpdateReader = source
		passes := rule.New[float32](c).PassCount()
		if passes == 1 {
			set.Updates = slices.Clone(set.Updates)
			for k := range set.Updates {
				set.Updates[k].Norm = math.NaN()
			}
		}
		if got := fold(t, c, set, 5); !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		if passes < 1 || passes > 2 || passes == 1 && (source.whole != 5 || source.columns != 0) {
			t.Errorf("%d passes wanted; read %d of 5 columns, %d blocks of columns", passes, source.whole,
				source.columns)
		}
	})
}

// TestTooFew checks that every rule returns an error for an empty set.
func TestTooFew(t *testing.T) {
	eachRule(t, func(t *testing.T, c rule.Config) {
		none := rule.UpdateSet[float32]{UpdateScale: 1, UpdateReader: rule.InMemoryUpdates[float32]{}}
		if _, _, err := folded(c, &none, 2, 2); !errors.Is(err, rule.ErrTooFewUpdates) {
			t.Errorf("of no updates: %v", err)
		}
	})
}

// TestDrawnTwice checks that an update of an agent that was drawn twice counts like two updates of agents that were
// drawn once.
func TestDrawnTwice(t *testing.T) {
	eachRule(t, func(t *testing.T, c rule.Config) {
		set, _ := setOf[float64](rand.New(rand.NewPCG(15, 16)), 9, 6)
		twice := rule.UpdateSet[float64]{UpdateScale: 1}
		var rows rule.InMemoryUpdates[float64]
		for k, s := range set.Updates {
			for range s.DrawCount {
				twice.Updates = append(twice.Updates, rule.UpdateMetadata{Bucket: s.Bucket, AgentIDRank: s.AgentIDRank,
					DrawCount:          1,
					ContributionFactor: 1,
					Norm:               s.Norm})
				rows = append(rows, set.UpdateReader.(rule.InMemoryUpdates[float64])[k])
			}
		}
		twice.UpdateReader = rows
		want := fold(t, c, twice, 6)
		for j, x := range fold(t, c, set, 6) {
			if math.Abs(x-want[j]) > 1e-12*(1+math.Abs(want[j])) {
				t.Errorf("coordinate %d: %v, want %v", j, x, want[j])
			}
		}
	})
}

// TestArrival checks, for each rule whose result may not depend on the order of the updates, that every order gives
// bitwise the same result.
func TestArrival(t *testing.T) {
	eachRule(t, func(t *testing.T, c rule.Config) {
		if !slices.Contains(anyOrder, c.Rule) {
			return // Skip rules for which the order matters; round.TestContributions checks that order.
		}
		rng := rand.New(rand.NewPCG(17, 18))
		set, _ := setOf[float64](rng, 20, 7)
		want := fold(t, c, set, 7)
		rows := slices.Clone(set.UpdateReader.(rule.InMemoryUpdates[float64]))
		shares := slices.Clone(set.Updates)
		rng.Shuffle(len(rows), func(i, j int) {
			rows[i], rows[j] = rows[j], rows[i]
			shares[i], shares[j] = shares[j], shares[i]
		})
		if got := fold(t, c, rule.UpdateSet[float64]{Updates: shares, UpdateScale: 1, UpdateReader: rows},
			7); !slices.Equal(got,
			want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}

// TestScale checks that gradients are aggregated in the same way as parameters, and that the result is then multiplied
// by the update scale.
func TestScale(t *testing.T) {
	eachRule(t, func(t *testing.T, c rule.Config) {
		set, _ := setOf[float32](rand.New(rand.NewPCG(5, 6)), 9, 20)
		once := fold(t, c, set, 20)
		set.UpdateScale = -0.1
		for j, x := range fold(t, c, set, 20) {
			if want := float64(-0.1 * once[j]); x != want {
				t.Errorf("%v, want %v", x, want)
			}
		}
	})
}

// broken is an UpdateReader that returns an error from every read.
type broken struct{ rule.InMemoryUpdates[float32] }

var errBroken = errors.New("broken")

func (broken) ForEachUpdate(int, int, func(int, []float32)) error { return errBroken }
func (broken) ReadColumns(int, [][]float32) error                 { return errBroken }
func (b broken) set(of rule.UpdateSet[float32]) rule.UpdateSet[float32] {
	of.UpdateReader = b
	return of
}

func TestReadingFails(t *testing.T) {
	eachRule(t, func(t *testing.T, c rule.Config) {
		set, _ := setOf[float32](rand.New(rand.NewPCG(7, 8)), 5, 4)
		set = broken{set.UpdateReader.(rule.InMemoryUpdates[float32])}.set(set)
		if _, _, err := folded(c, &set, 4, 4); !errors.Is(err, errBroken) {
			t.Errorf("error %v", err)
		}
	})
}

// TestBuckets checks that the rule mean gives bitwise the same result as the algorithm in docs/ALGORITHMS.md, for
// various numbers of updates.
func TestBuckets(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	for _, n := range []int{1, 2, 3, 10, 63, 64, 65, 500} {
		set, ids := setOf[float32](rng, n, 11)
		var sent []testkit.WeightedUpdate[float32]
		draws := 0
		for k, s := range set.Updates {
			set.Updates[k].ContributionFactor *= 1.1
			sent = append(sent, testkit.WeightedUpdate[float32]{ID: ids[k], Factor: set.Updates[k].ContributionFactor,
				Values: set.UpdateReader.(rule.InMemoryUpdates[float32])[k]})
			draws += s.DrawCount
		}
		want := testkit.ReferenceAggregate(7, 1, draws, sent...)
		if got := fold(t, rule.DefaultConfig(), set, 11); !slices.Equal(got, want) {
			t.Errorf("of %d updates: %v, want %v", n, got, want)
		}
	}
}

// TestCounted checks that each rule treats an update with a norm above MaxNorm as if the update were scaled down to
// MaxNorm. Updates with smaller norms must not change.
func TestCounted(t *testing.T) {
	eachRule(t, func(t *testing.T, c rule.Config) {
		set, _ := setOf[float64](rand.New(rand.NewPCG(21, 22)), 9, 30)
		short := rule.UpdateSet[float64]{UpdateScale: 1}
		var rows rule.InMemoryUpdates[float64]
		for k, u := range set.Updates {
			row := slices.Clone(set.UpdateReader.(rule.InMemoryUpdates[float64])[k])
			if k%2 == 0 {
				// Set some bounds above the norms of the updates and some below.
				set.Updates[k].MaxNorm = u.Norm * float64(k+1) / 6
			}
			counts := set.Updates[k].ClippedNorm() / u.Norm
			for j := range row {
				row[j] *= counts
			}
			u.Norm *= counts
			short.Updates, rows = append(short.Updates, u), append(rows, row)
		}
		short.UpdateReader = rows
		want := fold(t, c, short, 30)
		for j, x := range fold(t, c, set, 30) {
			if math.Abs(x-want[j]) > 1e-11*(1+math.Abs(want[j])) {
				t.Errorf("coordinate %d: %v, want %v", j, x, want[j])
			}
		}
	})
}

// TestClipped checks that the rule mean scales an update with a norm above MaxNorm down to MaxNorm, and leaves smaller
// updates bitwise unchanged.
func TestClipped(t *testing.T) {
	set := rule.UpdateSet[float32]{UpdateScale: 1, Updates: []rule.UpdateMetadata{{DrawCount: 1, ContributionFactor: 1,
		Norm:    5,
		MaxNorm: 2.5},
		{DrawCount: 1, ContributionFactor: 1, Norm: 1e-3, MaxNorm: 2.5}, {DrawCount: 1, ContributionFactor: 1,
			Norm: 1e38, MaxNorm: 2.5}},
		UpdateReader: rule.InMemoryUpdates[float32]{{3, 4}, {1e-3, 0}, {0, -1e38}}}
	if got, want := fold(t, rule.DefaultConfig(), set, 2), []float64{(1.5 + float64(float32(1e-3))) / 3,
		(2 - 2.5) / 3}; math.Abs(got[0]-want[0]) > 1e-12 || math.Abs(got[1]-want[1]) > 1e-6 {
		t.Errorf("%v, want %v", got, want)
	}
	for k := range set.Updates {
		set.Updates[k].MaxNorm = 1e39
	}
	clipped := fold(t, rule.DefaultConfig(), set, 2)
	for k := range set.Updates {
		set.Updates[k].MaxNorm = 0
	}
	if got := fold(t, rule.DefaultConfig(), set, 2); !slices.Equal(got, clipped) {
		t.Errorf("%v without a bound, %v with one that nobody is above", got, clipped)
	}
}

// TestAggregators checks that two programs can share an aggregation: if each program sums half of the buckets and the
// two sums are added, the result must be bitwise equal to the result of one program.
func TestAggregators(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	all, left, right := rule.NewBucketedSum(25), rule.NewBucketedSum(25), rule.NewBucketedSum(25)
	v, both, a, b := make([]float32, 25), make([]float64, 25), make([]float64, 25), make([]float64, 25)
	for bucket := range rule.BucketCount {
		half := left
		if bucket >= rule.BucketCount/2 {
			half = right
		}
		for range rng.IntN(3) {
			for i := range v {
				v[i] = float32(rng.NormFloat64())
			}
			f := rng.Float64()
			rule.AddToBucketedSum(all, bucket, f, v)
			rule.AddToBucketedSum(half, bucket, f, v)
		}
	}
	all.WriteMeanAndReset(both, 1, 1)
	left.WriteMeanAndReset(a, 1, 1)
	right.WriteMeanAndReset(b, 1, 1)
	for i, x := range both {
		if a[i]+b[i] != x {
			t.Errorf("element %d is %v + %v of two, %v of one", i, a[i], b[i], x)
		}
	}
}

// TestSumMemory checks that a bucketed sum stores at most 7 vectors, whatever the number of updates.
func TestSumMemory(t *testing.T) {
	const d = 1 << 16
	v, s := make([]float32, d), rule.NewBucketedSum(d)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for bucket := range rule.BucketCount {
		rule.AddToBucketedSum(s, bucket, 1, v)
		rule.AddToBucketedSum(s, bucket, 1, v)
	}
	runtime.ReadMemStats(&after)
	if got, most := after.TotalAlloc-before.TotalAlloc, uint64(7*8*d+64<<10); got > most {
		t.Errorf("%d bytes, want at most %d", got, most)
	}
}

// TestNegativeZero checks that a sum of negative zeros remains −0. The sum of a single bucket must therefore not be
// added to +0.
func TestNegativeZero(t *testing.T) {
	s, d := rule.NewBucketedSum(1), make([]float64, 1)
	rule.AddToBucketedSum(s, 5, -1, []float64{math.SmallestNonzeroFloat64})
	s.WriteMeanAndReset(d, 2, 1) // The result is rounded to −0.
	if d[0] != 0 || !math.Signbit(d[0]) {
		t.Errorf("got %v", d[0])
	}
}

func TestSumRefuses(t *testing.T) {
	for name, wrong := range map[string]func(s *rule.BucketedSum){
		"an earlier bucket": func(s *rule.BucketedSum) { rule.AddToBucketedSum(s, 3, 1, []float32{1}) },
		"no bucket":         func(s *rule.BucketedSum) { rule.AddToBucketedSum(s, 64, 1, []float32{1}) },
		"another length":    func(s *rule.BucketedSum) { rule.AddToBucketedSum(s, 4, 1, []float32{1, 2}) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			s := rule.NewBucketedSum(1)
			rule.AddToBucketedSum(s, 4, 1, []float32{1})
			wrong(s)
		}()
	}
}
