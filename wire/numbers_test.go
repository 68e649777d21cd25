package wire_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/wire"
)

// TestNumbersMustBeFinite writes NaN, infinite and unusual finite numbers to every float64 field of every golden
// message. Decoding must fail for the numbers that are not finite.
func TestNumbersMustBeFinite(t *testing.T) {
	odd := []float64{math.Copysign(0, -1), math.SmallestNonzeroFloat64, -0x1p-1060, math.MaxFloat64, -math.MaxFloat64}
	fields := 0
	// These fields are encoded in sections that most tasks do not contain.
	absent := []string{".Training.GradientNoise.Variance", ".Training.Proximal", ".Model.HuberDelta"}
	for _, g := range goldens() {
		f := formNamed(t, g.form)
		eachField(g.value, func(path string, field reflect.Value) {
			linear := slices.Contains([]string{"task", "task_autoencoder", "task_logistic", "task_huber"}, g.file)
			if path == ".Model.HuberDelta" && g.file == "task_huber" {
				linear = false
			}
			if field.Kind() != reflect.Float64 || linear && slices.Contains(absent, path) ||
				strings.HasPrefix(path, ".Evaluation.") || // TestEvaluationAddsUp tests these fields.
				path == ".Personal.DittoLambda" && g.file != "task_ditto" ||
				g.form == "announcement" && g.file != "announcement_statistics" {
				return
			}
			fields++
			for _, x := range notFinite() {
				field.SetFloat(x)
				if _, err := f.decode(f.encode(g.value)); !errors.Is(err, wire.ErrNotFinite) {
					t.Errorf("%s%s = %x: error %v", g.file, path, math.Float64bits(x), err)
				}
			}
			for _, x := range odd {
				if field.SetFloat(x); (g.form == "invitation" || g.form == "announcement") && x <= 0 {
					continue // Weights must be positive; TestWeightIsPositive tests them.
				}
				got, err := f.decode(f.encode(g.value))
				if err != nil || !reflect.DeepEqual(got, g.value) {
					t.Errorf("%s%s = %v: read %+v, error %v", g.file, path, x, got, err)
				}
			}
		})
	}
	if fields < 20 {
		t.Errorf("only %d fields were tested", fields)
	}
}

func TestWeightIsPositive(t *testing.T) {
	for _, x := range []float64{0, math.Copysign(0, -1), -1, -math.SmallestNonzeroFloat64} {
		m := wire.Invitation{Agent: "a1", StepSizeWeight: x}
		if _, err := wire.DecodeInvitation(m.Body()); err == nil {
			t.Errorf("weight %v is taken", x)
		}
	}
}

func TestVectorMustBeFinite(t *testing.T) {
	for _, x := range notFinite() {
		p := wire.AppendVector(nil, []float64{1, x, 2})
		if err := wire.DecodeVector(make([]float64, 3), p); !errors.Is(err, wire.ErrNotFinite) {
			t.Errorf("float64 %x: error %v", math.Float64bits(x), err)
		}
	}
	// Use bytes, because a float32 variable might lose the bit that marks a signalling NaN. A named type uses the
	// generic loop.
	type own float32
	for _, bits := range []uint32{0x7f80_0000, 0xff80_0000, 0x7fc0_0000, 0x7f80_0001, 0xffc0_dead, 0xffff_ffff} {
		for n := range 10 {
			for at := range n {
				p := wire.AppendVector(nil, make([]float32, n))
				binary.LittleEndian.PutUint32(p[4*at:], bits)
				err, same := wire.DecodeVector(make([]float32, n), p), wire.DecodeVector(make([]own, n), p)
				if !errors.Is(err, wire.ErrNotFinite) || err.Error() != same.Error() {
					t.Errorf("element %d of %d is %x (%v): errors %v and %v", at, n, bits,
						math.Float32frombits(bits), err, same)
				}
			}
		}
	}
}

// TestVectorKeepsBits checks that every finite number is decoded bit by bit, including signed zeros and denormals.
func TestVectorKeepsBits(t *testing.T) {
	rng := seeded(5)
	v64 := append(randomFloats(rng, 1000), math.Copysign(0, -1), math.SmallestNonzeroFloat64, -0x1p-1060,
		math.MaxFloat64)
	got64 := make([]float64, len(v64))
	p := wire.AppendVector(nil, v64)
	if err := wire.DecodeVector(got64, p); err != nil || len(p) != 8*len(v64) {
		t.Fatalf("float64: %d bytes, error %v", len(p), err)
	}
	for i, x := range v64 {
		if math.Float64bits(got64[i]) != math.Float64bits(x) {
			t.Errorf("float64 %x became %x", math.Float64bits(x), math.Float64bits(got64[i]))
		}
	}

	v32 := []float32{float32(math.Copysign(0, -1)), math.SmallestNonzeroFloat32, -0x1p-140, math.MaxFloat32}
	for len(v32) < 1003 {
		if x := math.Float32frombits(rng.Uint32()); x-x == 0 {
			v32 = append(v32, x)
		}
	}
	got32 := make([]float32, len(v32))
	p = wire.AppendVector([]byte{}, v32)
	if err := wire.DecodeVector(got32, p); err != nil || len(p) != 4*len(v32) {
		t.Fatalf("float32: %d bytes, error %v", len(p), err)
	}
	for i, x := range v32 {
		bits := math.Float32bits(x)
		if math.Float32bits(got32[i]) != bits || binary.LittleEndian.Uint32(p[4*i:]) != bits {
			t.Errorf("float32 %x became %x, as bytes %x", bits, math.Float32bits(got32[i]), p[4*i:][:4])
		}
	}
}

func TestVectorLengthsMustAgree(t *testing.T) {
	for _, n := range []int{0, 3, 4, 5, 7, 9, 12, 16} {
		if err := wire.DecodeVector(make([]float32, 2), make([]byte, n)); err == nil {
			t.Errorf("%d bytes are taken for 2 float32", n)
		}
		if err := wire.DecodeVector(make([]float64, 1), make([]byte, n)); err == nil {
			t.Errorf("%d bytes are taken for 1 float64", n)
		}
	}
}

func TestSchemaSizes(t *testing.T) {
	for _, c := range []struct {
		schema     wire.TensorSchema
		len, bytes int
	}{{nil, 0, 0}, {smallSchema(), 3, 12}, {bigSchema(), 15379, 61516}, {statisticsSchema(), 9, 72}} {
		if c.schema.ElementCount() != c.len || c.schema.VectorByteCount() != c.bytes {
			t.Errorf("%v: %d elements in %d bytes, want %d in %d", c.schema, c.schema.ElementCount(),
				c.schema.VectorByteCount(), c.len,
				c.bytes)
		}
	}
}

// TestSchemaHashTellsApart checks that two schemas have different hashes if their vectors must not be averaged.
func TestSchemaHashTellsApart(t *testing.T) {
	spec := func(name string, d wire.DType, shape ...uint32) wire.TensorSpec {
		return wire.TensorSpec{Name: name, DType: d, Shape: shape}
	}
	seen := map[wire.Digest]int{}
	for i, s := range []wire.TensorSchema{
		nil, {spec("a", wire.Float32, 2, 3)}, {spec("b", wire.Float32, 2, 3)}, {spec("a", wire.Float64, 2, 3)},
		{spec("a", wire.Float32, 3, 2)}, {spec("a", wire.Float32, 6)},
		{spec("a", wire.Float32, 2, 3), spec("b", wire.Float32, 1)},
		{spec("b", wire.Float32, 1), spec("a", wire.Float32, 2, 3)},
	} {
		if j, ok := seen[s.Hash()]; ok {
			t.Errorf("schemas %d and %d have the same hash", i, j)
		}
		seen[s.Hash()] = i
	}
}

// TestVectorsOfAnyLength checks that elements are decoded bit by bit, and that an element that is not finite is
// detected at any position, whatever the block size of the decoder.
func TestVectorsOfAnyLength(t *testing.T) {
	odd := []float32{math.MaxFloat32, -math.MaxFloat32, math.SmallestNonzeroFloat32, float32(math.Copysign(0, -1)),
		1e-40}
	for n := range 40 {
		v := make([]float32, n)
		for i := range v {
			v[i] = odd[i%len(odd)]
		}
		p, got := wire.AppendVector([]byte{9}, v)[1:], make([]float32, n)
		if err := wire.DecodeVector(got, p); err != nil || !slices.Equal(got, v) ||
			!slices.Equal(p, plainVector(v)) {
			t.Errorf("%d elements: %v as %x, error %v", n, got, p, err)
		}
		for i := range v {
			for _, x := range notFinite() {
				bad := slices.Clone(v)
				bad[i] = float32(x)
				p := wire.AppendVector(nil, bad)
				err := wire.DecodeVector(got, p)
				if want := fmt.Sprintf("element %d is", i); !errors.Is(err, wire.ErrNotFinite) ||
					!strings.Contains(err.Error(), want) {
					t.Errorf("%v at %d of %d: error %v", x, i, n, err)
				}
			}
		}
	}
}

// plainVector is like AppendVector, but encodes one element at a time.
func plainVector(v []float32) (p []byte) {
	for _, x := range v {
		p = binary.LittleEndian.AppendUint32(p, math.Float32bits(x))
	}
	return p
}
