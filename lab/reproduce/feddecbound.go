package reproduce

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/mat"

	"github.com/fedmesh/fedmesh/d2d/graph"
	"github.com/fedmesh/fedmesh/lab/sim/data"
	"github.com/fedmesh/fedmesh/lab/theory"
)

// bound adds a finding that the error of FedDec stays below the bound of Theorem 1 in the FedDec paper. The theorem
// does not apply to FedAvg. If links fail, the constant α is computed from |λ₂(E[W^t W^tᵀ])|, the second eigenvalue of
// the expected squared mixing matrix.
func (f *feddecExperiment) bound(r *Report, fields []feddecInstance, tracks []*feddecRiskCurve) error {
	bounds := make([]theory.FedDec, len(fields))
	for i, in := range fields {
		var err error
		if bounds[i], err = f.theory(in.problem); err != nil {
			return err
		}
	}
	for _, t := range tracks {
		if t.radius < 0 {
			continue
		}
		last := t.t[len(t.t)-1]
		logs := make([]float64, len(fields))
		for i, in := range fields {
			b := bounds[i]
			b.ServerEvery, b.Alpha = t.serverEvery,
				graph.MixingAlphaOfEigenvalue(in.mixings[t.radius].SecondEigenvalue(f.LinkUp))
			logs[i] = math.Log(b.Bound(last) / in.problem.Objective.Excess(make([]float64, f.Inputs)))
		}
		r.Values.Set(fmt.Sprintf("bound_%s_H%d_t%d", f.name(t.radius), t.serverEvery, last), geometric(logs).mean)
		f.findRatioAboveOne(r, fmt.Sprintf("r = %v, H = %d: bound of Theorem 1 divided by the error", f.Radii[t.radius],
			t.serverEvery),
			minus(logs, t.last()), "> 1")
	}
	return nil
}

// theory returns the constants of Theorem 1 for a problem. It computes the gradient norm G² and the gradient variance
// σ̄² at the initial parameters z¹ = 0. There, the gradients of single rows are by far the largest, because the norms
// of the targets Y_i grow to 2ⁿ.
func (f *feddecExperiment) theory(p *data.Problem[float64]) (theory.FedDec, error) {
	var problem theory.Regression
	load := p.Loader(nil)
	out := theory.FedDec{Agents: f.Agents, Participants: f.Participants}
	for k := range f.Agents {
		s := load(k).Samples
		x, y := mat.NewDense(s.Len(), f.Inputs, nil), make([]float64, s.Len())
		square, mean := 0.0, mat.NewVecDense(f.Inputs, nil) // mean squared norm and mean of the row gradients
		for i := range y {
			row, target := s.Row(i)
			for j, v := range row {
				x.Set(i, j, v/math.Sqrt2)
			}
			y[i] = target / math.Sqrt2
			h := x.RowView(i)
			square += 4 * y[i] * y[i] * mat.Dot(h, h) / float64(len(y))
			mean.AddScaledVec(mean, -2*y[i]/float64(len(y)), h)
		}
		problem.X, problem.Y = append(problem.X, x), append(problem.Y, y)
		variance := square - mat.Dot(mean, mean)
		if f.BatchSize > 0 {
			variance /= float64(f.BatchSize)
		} else {
			variance = 0
		}
		out.GradientBound = max(out.GradientBound, math.Sqrt(variance+mat.Dot(mean, mean)))
		out.NoiseVar += variance / float64(f.Agents)
	}
	var err error
	if out.Constants, err = problem.Constants(); err != nil {
		return out, err
	}
	out.Start = mat.Norm(mat.NewVecDense(f.Inputs, out.Minimizer), 2)
	return out, nil
}
