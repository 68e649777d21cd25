package round_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// naive is the twin of AddScaled: decode, then add.
func naive[T wire.Float](acc []float64, c float64, v []byte) (float64, error) {
	w := make([]T, len(acc))
	if err := wire.DecodeVector(w, v); err != nil {
		return 0, err
	}
	sum := 0.0
	for i, x := range w {
		acc[i] += float64(c * float64(x))
		sum += float64(float64(x) * float64(x))
	}
	return math.Sqrt(sum), nil
}

func normal[T wire.Float](n int, rng *rand.Rand) []T {
	v := make([]T, n)
	for i := range v {
		v[i] = T(rng.NormFloat64() * math.Pow(10, float64(rng.IntN(9)-6)))
	}
	return v
}

func TestAddScaledTwin(t *testing.T) {
	t.Run("float32", testAddScaledTwin[float32])
	t.Run("float64", testAddScaledTwin[float64])
}

func testAddScaledTwin[T wire.Float](t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, 2, 3, 7, 8, 9, 1000} {
		fast, slow := normal[float64](n, rng), make([]float64, n)
		copy(slow, fast)
		for range 5 {
			v := wire.AppendVector(nil, normal[T](n, rng))
			c := rng.NormFloat64()
			got, err := round.AddScaled[T](fast, c, v)
			want, err2 := naive[T](slow, c, v)
			alone, err3 := round.Norm[T](v)
			if err = errors.Join(err, err2, err3); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(fast, slow) || got != want || alone != want {
				t.Errorf("n = %d: the sums or the norms %v, %v and %v differ", n, got, alone, want)
			}
		}
	}
}

func TestAggregateErrors(t *testing.T) {
	t.Run("float32", testAggregateErrors[float32])
	t.Run("float64", testAggregateErrors[float64])
}

func testAggregateErrors[T wire.Float](t *testing.T) {
	v := wire.AppendVector(nil, []T{1, 2, 3})
	for _, wrong := range [][]byte{nil, v[:len(v)-1], append(slices.Clone(v), 0), v[:2*len(v)/3]} {
		if _, err := round.AddScaled[T](make([]float64, 3), 1, wrong); err == nil {
			t.Errorf("%d bytes were added to 3 elements", len(wrong))
		}
	}
	if _, err := round.Norm[T](v[:len(v)-1]); err == nil {
		t.Error("a payload that ends within an element has a norm")
	}
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		v := wire.AppendVector(nil, []T{1, T(bad), 3})
		if _, err := round.AddScaled[T](make([]float64, 3), 0, v); !errors.Is(err, wire.ErrNotFinite) {
			t.Errorf("%v was added: %v", bad, err)
		}
		if _, err := round.Norm[T](v); !errors.Is(err, wire.ErrNotFinite) {
			t.Errorf("%v has a norm: %v", bad, err)
		}
		if err := round.Advance(make([]T, 2), []T{1, 1}, []float64{0, bad}); !errors.Is(err, wire.ErrNotFinite) {
			t.Errorf("a sum of %v made a model: %v", bad, err)
		}
	}
}

func TestAdvance(t *testing.T) {
	base := []float32{1, -2, 0.5, 1e30}
	acc := []float64{0.25, 1e-9, -0.5, 0}
	dst := make([]float32, 4)
	if err := round.Advance(dst, base, acc); err != nil {
		t.Fatal(err)
	}
	if want := []float32{1.25, -2, 0, 1e30}; !slices.Equal(dst, want) {
		t.Errorf("got %v, want %v", dst, want)
	}
	// The rounding is once, from the sum in float64: 1 + 2⁻²⁵ + 2⁻²⁵ is 1 + 2⁻²⁴ before
	// it, and one more 2⁻²⁵ tips the tie.
	if err := round.Advance(dst[:1], []float32{1}, []float64{3 * 0x1p-25}); err != nil || dst[0] != 1+0x1p-23 {
		t.Errorf("got %v, %v, want 1 + 2⁻²³", dst[0], err)
	}
	// A number that float64 holds may be too much for float32.
	if err := round.Advance(dst[:1], []float32{math.MaxFloat32}, []float64{math.MaxFloat32}); !errors.Is(err,
		wire.ErrNotFinite) {
		t.Errorf("a model beyond float32 was made: %v", err)
	}
	defer func() {
		if recover() == nil {
			t.Error("three lengths did not panic")
		}
	}()
	_ = round.Advance(dst, base, acc[:3])
}

// TestFoldArrival: the machine hands the set over in id order, so the order of
// arrival cannot matter; and for what the payloads hold, float64 sums of
// float32 values, it does not matter after rounding to float32 either.
func TestFoldArrival(t *testing.T) {
	const n, k = 500, 20
	rng := rand.New(rand.NewPCG(3, 4))
	base := normal[float32](n, rng)
	payloads := make([][]byte, k)
	for i := range payloads {
		v := make([]float32, n)
		for j := range v {
			v[j] = float32(rng.IntN(1<<20)-1<<19) * 0x1p-20 // sums of these are exact
		}
		payloads[i] = wire.AppendVector(nil, v)
	}
	var first []float32
	for range 5 {
		acc, dst := make([]float64, n), make([]float32, n)
		for _, i := range rng.Perm(k) {
			if _, err := round.AddScaled[float32](acc, 1.0/16, payloads[i]); err != nil {
				t.Fatal(err)
			}
		}
		if err := round.Advance(dst, base, acc); err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = dst
		} else if !slices.Equal(first, dst) {
			t.Fatal("the model depends on the order of arrival")
		}
	}
}

// BenchmarkAddScaled also measures the twin, in turn: x/twin is the time relative to it.
func BenchmarkAddScaled(b *testing.B) {
	const n = 100_000
	rng := rand.New(rand.NewPCG(5, 6))
	v, acc := wire.AppendVector(nil, normal[float32](n, rng)), make([]float64, n)
	b.SetBytes(int64(len(v)))
	var twin time.Duration
	for range b.N {
		if _, err := round.AddScaled[float32](acc, 0.1, v); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		began := time.Now()
		if _, err := naive[float32](acc, 0.1, v); err != nil {
			b.Fatal(err)
		}
		twin += time.Since(began)
		b.StartTimer()
	}
	b.ReportMetric(float64(b.Elapsed())/float64(twin), "x/twin")
}

// Add is AddScaled without the bytes, and AddChange is Add of what an agent sends.
func TestAddIsAddScaled(t *testing.T) {
	t.Run("float32", addIsAddScaled[float32])
	t.Run("float64", addIsAddScaled[float64])
}

func addIsAddScaled[T wire.Float](t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	direct, bytes, changes := make([]float64, 25), make([]float64, 25), make([]float64, 25)
	v, end, base := make([]T, 25), make([]T, 25), make([]T, 25)
	for range 100 {
		for i := range v {
			end[i], base[i] = T(rng.NormFloat64()), T(rng.NormFloat64())
			v[i] = end[i] - base[i]
		}
		c := rng.Float64()
		round.Add(direct, c, v)
		round.AddChange(changes, c, end, base)
		if _, err := round.AddScaled[T](bytes, c, wire.AppendVector(nil, v)); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(direct, bytes) || !slices.Equal(direct, changes) {
		t.Errorf("sums differ:\n%v\n%v\n%v", direct, bytes, changes)
	}
}
