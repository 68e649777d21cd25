package learner

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fedmesh/fedmesh/spec"
)

// devicesOf returns the moments of several devices. Each device has the given rows of one feature and the target 0.
func devicesOf(rows ...[]float64) []*ColumnMoments {
	var all []*ColumnMoments
	for _, r := range rows {
		all = append(all, ComputeColumnMoments(NewSamples(1, slices.Clone(r), make([]float64, len(r)))))
	}
	return all
}

func giving(all []*ColumnMoments) func(take func(*ColumnMoments)) error {
	return func(take func(*ColumnMoments)) error {
		for _, m := range all {
			take(m)
		}
		return nil
	}
}

// combined returns the combined standardisation of the devices for a regression without clipping, and the deviating
// devices.
func combined(t *testing.T, all []*ColumnMoments) (Standardization, []DeviatingDevice) {
	t.Helper()
	st, far, err := CombineIntoStandardization(len(all), len(all[0].Mean), giving(all), spec.LossSquared, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Validate(); err != nil {
		t.Fatal(err)
	}
	return st, far
}

// dumbMedian computes the median directly from its definition.
func dumbMedian(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// TestCombineAgainstRows compares the combined standardisation with a standardisation that is computed from the rows,
// for different numbers of devices, rows and columns per block.
func TestCombineAgainstRows(t *testing.T) {
	rng := newRNG(41)
	for range 50 {
		devices, inputs := minDevicesToOutvote+rng.IntN(8), 1+rng.IntN(4)
		var all []*ColumnMoments
		rows := make([][][]float64, inputs+1) // rows, indexed by column and device
		for range devices {
			n := 2 + rng.IntN(20)
			s := NewSamples(inputs, make([]float64, n*inputs), make([]float64, n))
			columns := make([][]float64, inputs+1)
			for i := range n {
				x, _ := s.Row(i)
				for j := range x {
					x[j] = rng.NormFloat64()*float64(j+1) + float64(10*j)
					columns[j] = append(columns[j], x[j])
				}
				s.y[i] = 5 + rng.NormFloat64()
				columns[inputs] = append(columns[inputs], s.y[i])
			}
			for j := range columns {
				rows[j] = append(rows[j], columns[j])
			}
			all = append(all, ComputeColumnMoments(s))
		}
		var want Standardization
		for _, column := range rows {
			var means, around []float64
			for _, r := range column {
				sum := 0.0
				for _, x := range r {
					sum += x
				}
				means = append(means, sum/float64(len(r)))
			}
			m := dumbMedian(means)
			for _, r := range column {
				sum := 0.0
				for _, x := range r {
					sum += (x - m) * (x - m)
				}
				around = append(around, sum/float64(len(r)))
			}
			want.Mean, want.Scale = append(want.Mean, m), append(want.Scale, math.Sqrt(dumbMedian(around)))
		}
		got, far := combined(t, all)
		compare(t, "mean", got.Mean, want.Mean, 1e-12)
		compare(t, "scale", got.Scale, want.Scale, 1e-9)
		if len(far) > 0 {
			t.Errorf("far off: %+v", far)
		}
	}
}

// TestCombineInBlocks checks that the result does not depend on the number of columns per block.
func TestCombineInBlocks(t *testing.T) {
	const devices, wide = 6, 7
	var all []*ColumnMoments
	rng := newRNG(42)
	for range devices {
		m := newColumnMoments(wide - 1)
		m.RowCount = 4
		for j := range wide {
			x := rng.Float64()
			m.Mean[j], m.SquaredDeviations[j] = x, x*x
		}
		all = append(all, m)
	}
	want, _ := combined(t, all)
	for width := 1; width <= wide; width++ {
		passes := 0
		got := Standardization{Mean: make([]float64, wide), Scale: make([]float64, wide)}
		err := newDeviceColumnBlock(devices, width).combineAllColumns(func(take func(*ColumnMoments)) error {
			passes++
			return giving(all)(take)
		}, &got, make([]DeviatingDevice, devices))
		if most := (wide + width - 1) / width; err != nil || passes != most {
			t.Errorf("width %d: %d passes, %v; want %d", width, passes, err, most)
		}
		compare(t, "mean", got.Mean, want.Mean, 0)
		compare(t, "scale", got.Scale, want.Scale, 0)
	}
}

// TestOneLiarIsOutvoted checks that one malicious device among five or more devices cannot move the mean and the
// variance outside the range of the honest devices.
func TestOneLiarIsOutvoted(t *testing.T) {
	rng := newRNG(43)
	lies := []float64{0, 1, -1, 1e-30, 1e6, -1e6, 1e30, -1e30, math.MaxFloat32, -math.MaxFloat32}
	for range 300 {
		honest := make([][]float64, 4+rng.IntN(6))
		var means []float64
		for k := range honest {
			sum := 0.0
			for range 5 + rng.IntN(30) {
				x := 3 + 2*rng.NormFloat64()
				honest[k], sum = append(honest[k], x), sum+x
			}
			means = append(means, sum/float64(len(honest[k])))
		}
		lie := []float64{lies[rng.IntN(len(lies))], lies[rng.IntN(len(lies))]}
		all := devicesOf(append([][]float64{lie}, honest...)...)
		st, far := combined(t, all)
		m := st.Mean[0]
		if m < slices.Min(means) || m > slices.Max(means) {
			t.Fatalf("lie %v: mean %v, the honest say %v", lie, m, means)
		}
		var around []float64
		for _, d := range all[1:] {
			around = append(around, d.SquaredDeviations[0]/d.RowCount+(d.Mean[0]-m)*(d.Mean[0]-m))
		}
		if v := st.Scale[0] * st.Scale[0]; v < slices.Min(around)*(1-1e-9) || v > slices.Max(around)*(1+1e-9) {
			t.Fatalf("lie %v: variance %v, the honest say %v", lie, v, around)
		}
		if loud := max(math.Abs(lie[0]), math.Abs(lie[1])) > 1e5; loud != (len(far) == 1 && far[0].DeviceIndex == 0 &&
			far[0].ColumnIndex == 0) {
			t.Fatalf("lie %v: far off are %+v", lie, far)
		}
	}
}

// TestColumnsThatFewDevicesVary checks a column that is constant on most devices: it must be scaled by the spread on
// the other devices. Of three or more such devices, the largest and the smallest spread must not count.
func TestColumnsThatFewDevicesVary(t *testing.T) {
	still := []float64{7, 7, 7}
	pressure := []float64{100_007, 99_993} // pressure values far from 0 with a small spread
	for _, tt := range []struct {
		name  string
		rows  [][]float64
		scale float64
	}{
		{"none", [][]float64{still, still, still, still, still}, 1},
		{"one", [][]float64{still, still, still, still, pressure}, 1e5},
		{"one, with another constant", [][]float64{still, still, still, still, {100_007}}, 1e5},
		{"two", [][]float64{still, still, still, pressure, pressure}, 1e5},
		{"three of seven, of whom one lies", [][]float64{still, still, still, still, pressure, pressure, {1e30, -1e30}},
			1e5},
		{"three of seven, of whom one lies low",
			[][]float64{still, still, still, still, pressure, pressure, {7.01, 6.99}}, 1e5},
		{"a rounded constant", [][]float64{{0.1, 0.1, 0.1}, {0.1}, {0.1, 0.1}, {0.1, 0.1, 0.1, 0.1, 0.1, 0.1},
			{0.1, 0.1, 0.1}}, 1},
	} {
		st, _ := combined(t, devicesOf(tt.rows...))
		if got := st.Scale[0]; math.Abs(got/tt.scale-1) > 1e-3 {
			t.Errorf("%s: scale %v, want about %v", tt.name, got, tt.scale)
		}
	}
}

// TestColumnsOfTwoValues checks that columns with two different values are centred. They must be scaled only if the
// values are neither 0 and 1 nor −1 and 1.
func TestColumnsOfTwoValues(t *testing.T) {
	column := func(a, b float64, ones ...int) (rows [][]float64) {
		for _, n := range ones {
			r := make([]float64, 20)
			for i := range r {
				if r[i] = a; i < n {
					r[i] = b
				}
			}
			rows = append(rows, r)
		}
		return rows
	}
	for _, tt := range []struct {
		name string
		rows [][]float64
		unit bool
	}{
		{"a rare sign", column(0, 1, 0, 0, 1, 0, 2, 0, 0), true},
		{"a common sign", column(0, 1, 3, 5, 10, 11, 20), true},
		{"−1 and 1", column(-1, 1, 3, 5, 10, 11, 20), true},
		{"a sign, and a liar", append(column(0, 1, 3, 5, 10, 11), []float64{1e6, -1e6}), true},
		{"0 and 1e5", column(0, 1e5, 3, 5, 10, 11, 20), false},
		{"0 on most, and a liar", append(column(0, 1, 0, 0, 0, 0), []float64{1e5, 0}), false},
	} {
		st, _ := combined(t, devicesOf(tt.rows...))
		if unit := st.Scale[0] == 1; unit != tt.unit {
			t.Errorf("%s: scale %v", tt.name, st.Scale[0])
		}
	}
}

// TestFewDevicesArePooled checks that with four devices the result equals the standardisation computed from all rows
// together.
func TestFewDevicesArePooled(t *testing.T) {
	rows := [][]float64{{1, 2}, {3, 4, 5}, {6}, {7, 8, 30}}
	got, far := combined(t, devicesOf(rows...))
	want := devicesOf(slices.Concat(rows...))[0].Standardization(spec.LossSquared, 0)
	compare(t, "mean", got.Mean, want.Mean, 1e-15)
	compare(t, "scale", got.Scale, want.Scale, 1e-15)
	if len(far) > 0 {
		t.Errorf("far off: %+v", far)
	}
}

func TestCombineFails(t *testing.T) {
	gone := errors.New("gone")
	for _, devices := range []int{1, minDevicesToOutvote} {
		if _, _, err := CombineIntoStandardization(devices, 2, func(func(*ColumnMoments)) error { return gone },
			spec.LossSquared,
			0); !errors.Is(err, gone) {
			t.Errorf("%d devices: %v", devices, err)
		}
	}
}

func TestCombineLeavesLabels(t *testing.T) {
	var all []*ColumnMoments
	for k := range 6 {
		all = append(all, ComputeColumnMoments(NewSamples(1, []float64{1, float64(k)}, []float64{1, 0})))
	}
	st, _, err := CombineIntoStandardization(6, 2, giving(all), spec.LossLogistic, 3)
	if err != nil || st.Mean[1] != 0 || st.Scale[1] != 1 || st.Clip != 3 {
		t.Errorf("%+v, %v", st, err)
	}
}

func TestMomentsCheck(t *testing.T) {
	for _, tt := range []struct {
		rows uint64
		q    float64
		want string
	}{
		{2, 10, ""},
		{3, 10, "moments: computed from 2 rows, but the update reports 3 rows"},
		{2, 1e80, "moments: column 0 has the mean square 5e+79, which exceeds the range of float32"},
	} {
		m, err := ColumnMomentsFromVector([]float64{2, 2, 0, tt.q, 0})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := m.CheckPlausible(tt.rows); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%d rows, q %v: %q, want %q", tt.rows, tt.q, got, tt.want)
		}
	}
}

// BenchmarkCombine combines the moments of 10⁴ devices with 10³ columns.
func BenchmarkCombine(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	m := newColumnMoments(999)
	m.RowCount = 100
	each := func(take func(*ColumnMoments)) error {
		for range 10_000 {
			for j := range m.Mean {
				x := rng.Float64()
				m.Mean[j], m.SquaredDeviations[j] = x, 10*x*x
			}
			take(m)
		}
		return nil
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := CombineIntoStandardization(10_000, 1000, each, spec.LossSquared, 0); err != nil {
			b.Fatal(err)
		}
	}
}
