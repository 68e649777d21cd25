package theory

import (
	"math/bits"
	"testing"
)

// enumerate computes the variance E‖â − ā‖² by averaging over all possible samples of l vectors.
func enumerate(m Mixture, l int, replacement, repetition bool) float64 {
	k := len(m.Means)
	mean := make([]float64, len(m.Means[0]))
	for _, a := range m.Means {
		for j, v := range a {
			mean[j] += v / float64(k)
		}
	}
	square := func(times []int) float64 {
		total := 0.0
		for j := range mean {
			miss := -mean[j]
			for i, n := range times {
				miss += float64(n) * m.Means[i][j] / float64(l)
			}
			total += miss * miss
		}
		for i, n := range times {
			if repetition {
				n *= n
			}
			total += float64(n) * m.Variances[i] / float64(l*l)
		}
		return total
	}
	sum, count := 0.0, 0.0
	if !replacement {
		for set := range 1 << k {
			if bits.OnesCount(uint(set)) != l {
				continue
			}
			times := make([]int, k)
			for i := range k {
				times[i] = set >> i & 1
			}
			sum, count = sum+square(times), count+1
		}
		return sum / count
	}
	words := 1
	for range l {
		words *= k
	}
	for word := range words {
		times := make([]int, k)
		for range l {
			times[word%k]++
			word /= k
		}
		sum, count = sum+square(times), count+1
	}
	return sum / count
}

func TestSamplingAgainstEnumeration(t *testing.T) {
	m := Mixture{Means: [][]float64{{1, 2}, {-3, 0.5}, {0, 0}, {4, -1}}, Variances: []float64{0.3, 1, 2, 0.1}}
	for l := 1; l <= 4; l++ {
		near(t, "without", m.WithoutReplacement(l), enumerate(m, l, false, false), 1e-13)
		near(t, "with", m.WithReplacement(l), enumerate(m, l, true, false), 1e-13)
		near(t, "with, repeated", m.WithRepetition(l), enumerate(m, l, true, true), 1e-13)
	}
	one := Mixture{Means: [][]float64{{5}}, Variances: []float64{2}}
	near(t, "K = 1", one.WithoutReplacement(1), 2, 0)
}

func TestInterval95(t *testing.T) {
	mean, half := Interval95([]float64{1, 2, 3, 4})
	near(t, "mean", mean, 2.5, 1e-15)
	// The expected half-width is t_{0.975,3}·s/√n, with the quantile of Student's t distribution, the standard
	// deviation s, and n = 4 values.
	near(t, "half width", half, 3.182446305284263*1.2909944487358056/2, 1e-9)
}
