package demo

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/mat"

	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/spec"
)

// ridgeLambda is the penalty λ of the ridge regressions that are compared with the federation. With features h, target
// γ and weights w, they minimise ½Σ(γ − hᵀw)² + (λ/2)‖w‖² on standardised columns.
const ridgeLambda = 1

// clip limits standardised features to ±6 standard deviations.
const clip = 6

// baselineScores holds R² scores of models that are trained without a federation. All are evaluated on the held-out
// year of all stations.
type baselineScores struct {
	Persistence float64        // R² of the prediction that the value does not change within six hours
	Alone       []stationScore // R² of one model per station, each trained on the rows of that station
	Central     float64        // R² of one model that is trained on the rows of all stations
}

// stationScore is the score of a model that is trained on the rows of one station only.
type stationScore struct {
	Name string
	Rows int
	R2   float64
}

func baselines(f *files) (*baselineScores, error) {
	held, err := f.load(f.held)
	if err != nil {
		return nil, err
	}
	var pooledX, pooledY []float32
	b := &baselineScores{Persistence: persistence(held)}
	for i, path := range f.train {
		s, err := f.load(path)
		if err != nil {
			return nil, err
		}
		r2, err := ridge(s, held)
		if err != nil {
			return nil, fmt.Errorf("model of station %s: %w", f.stations[i], err)
		}
		b.Alone = append(b.Alone, stationScore{f.stations[i], s.Len(), r2})
		all := s.All()
		pooledX, pooledY = append(pooledX, all.X...), append(pooledY, all.Y...)
	}
	b.Central, err = ridge(learner.NewSamples(len(f.features), pooledX, pooledY), held)
	return b, err
}

// persistence returns R² of the prediction that the value does not change. persistence requires the current value as
// the first feature.
func persistence(held *learner.Samples[float32]) float64 {
	return r2(held, func(x []float32) float64 { return float64(x[0]) })
}

// ridge fits a ridge regression to the training rows and returns its R² on the held-out rows. It standardises all rows
// with the moments of the training rows.
func ridge(train, held *learner.Samples[float32]) (float64, error) {
	st := learner.ComputeColumnMoments(train).Standardization(spec.LossSquared, clip)
	x, _ := train.Row(0)
	d := len(x) + 1 // number of weights: one per feature, and one for the constant term
	row := func(dst []float64, x []float32) {
		for j, v := range x {
			dst[j] = max(-clip, min(clip, (float64(v)-st.Mean[j])/st.Scale[j]))
		}
		dst[d-1] = 1
	}
	a, b := mat.NewSymDense(d, nil), mat.NewVecDense(d, nil)
	h := make([]float64, d)
	target := st.Mean[d-1]
	for i := range train.Len() {
		x, y := train.Row(i)
		row(h, x)
		v := mat.NewVecDense(d, h)
		a.SymRankOne(a, 1, v)
		b.AddScaledVec(b, float64(y)-target, v)
	}
	for j := range d {
		a.SetSym(j, j, a.At(j, j)+ridgeLambda)
	}
	var c mat.Cholesky
	if !c.Factorize(a) {
		return 0, fmt.Errorf("cannot solve the normal equations")
	}
	w := mat.NewVecDense(d, nil)
	if err := c.SolveVecTo(w, b); err != nil {
		return 0, err
	}
	return r2(held, func(x []float32) float64 {
		row(h, x)
		return target + mat.Dot(w, mat.NewVecDense(d, h))
	}), nil
}

// r2 returns the coefficient of determination R² = 1 − SSE/SST of a predictor on the held-out rows. SSE is the sum of
// squared errors, and SST is the sum of squared deviations of the targets from their mean.
func r2(held *learner.Samples[float32], predict func(x []float32) float64) float64 {
	mean, n := 0.0, float64(held.Len())
	for i := range held.Len() {
		_, y := held.Row(i)
		mean += float64(y) / n
	}
	sse, sst := 0.0, 0.0
	for i := range held.Len() {
		x, y := held.Row(i)
		sse += math.Pow(float64(y)-predict(x), 2)
		sst += math.Pow(float64(y)-mean, 2)
	}
	return 1 - sse/sst
}
