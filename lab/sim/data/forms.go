package data

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"

	"gonum.org/v1/gonum/mat"

	"github.com/fedmesh/fedmesh/learner"
)

// QuadraticFile is a file of quadratic risks F_k(w) = ½(w − b_k)ᵀA_k(w − b_k), small enough to verify by hand.
type QuadraticFile struct {
	Agents []AgentQuadratic `json:"agents"`
	Start  []float64        `json:"start"` // initial model w_0; nil means 0
}

// AgentQuadratic describes the risk of an agent and its settings.
type AgentQuadratic struct {
	A          [][]float64 `json:"A"` // symmetric positive semidefinite matrix A_k
	B          []float64   `json:"b"`
	LocalSteps *int        `json:"local_steps"` // number of local steps; nil means 1
	Weight     *float64    `json:"weight"`      // weight of the agent, in any scale; nil means 1
}

// ReadForms reads and validates a file of quadratic risks.
func ReadForms(path string) (*QuadraticFile, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var f QuadraticFile
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return nil, err
	}
	if len(f.Agents) == 0 {
		return nil, errors.New(`agents is empty; want [{"A": [[…]], "b": […]}, …]`)
	}
	dim := len(f.Agents[0].B)
	if dim == 0 || f.Start != nil && len(f.Start) != dim {
		return nil, fmt.Errorf("start has %d numbers and agents[0].b has %d; want equal lengths of at least one",
			len(f.Start),
			dim)
	}
	for k := range f.Agents {
		a := &f.Agents[k]
		if _, err := a.root(dim); err != nil {
			return nil, fmt.Errorf("agents[%d]: %w", k, err)
		}
		switch {
		case a.LocalSteps != nil && *a.LocalSteps < 1:
			return nil, fmt.Errorf("agents[%d].local_steps is %d; want at least 1", k, *a.LocalSteps)
		case a.Weight != nil && !(*a.Weight > 0 && !math.IsInf(*a.Weight, 1)):
			return nil, fmt.Errorf("agents[%d].weight is %v; want a positive number", k, *a.Weight)
		}
	}
	return &f, nil
}

// LocalSteps returns the number of local steps of each agent, or nil if the file does not contain it.
func (f *QuadraticFile) LocalSteps() []float64 {
	return numberOfEachAgent(f.Agents, func(a *AgentQuadratic) (float64, bool) {
		if a.LocalSteps == nil {
			return 1, false
		}
		return float64(*a.LocalSteps), true
	})
}

// Weights returns the weight of each agent in any scale, or nil if the file does not contain weights.
func (f *QuadraticFile) Weights() []float64 {
	return numberOfEachAgent(f.Agents, func(a *AgentQuadratic) (float64, bool) {
		if a.Weight == nil {
			return 1, false
		}
		return *a.Weight, true
	})
}

// numberOfEachAgent returns number(a) for each agent a. numberOfEachAgent returns nil if no agent specifies this
// number.
func numberOfEachAgent(agents []AgentQuadratic, number func(a *AgentQuadratic) (v float64, said bool)) (all []float64) {
	some := false
	for k := range agents {
		v, said := number(&agents[k])
		all, some = append(all, v), some || said
	}
	if !some {
		return nil
	}
	return all
}

// root returns a d×d matrix R with RᵀR = A, row by row.
func (a *AgentQuadratic) root(d int) ([]float64, error) {
	flat := slices.Concat(a.A...)
	ragged := func(row []float64) bool { return len(row) != d }
	if len(a.A) != d || len(flat) != d*d || slices.ContainsFunc(a.A, ragged) {
		return nil, fmt.Errorf("matrix A has %d rows and %d numbers in total; want a square matrix with %d rows",
			len(a.A), len(flat), d)
	}
	if len(a.B) != d {
		return nil, fmt.Errorf("b has %d numbers; want %d", len(a.B), d)
	}
	for i := range d {
		for j := range i {
			if flat[i*d+j] != flat[j*d+i] {
				return nil, fmt.Errorf("matrix A is not symmetric: [%d][%d] is %v, but [%d][%d] is %v",
					i, j, flat[i*d+j], j,
					i, flat[j*d+i])
			}
		}
	}
	var eigen mat.EigenSym
	if !eigen.Factorize(mat.NewSymDense(d, flat), true) {
		return nil, errors.New("cannot compute the eigenvalues of matrix A")
	}
	values, root, most := eigen.Values(nil), make([]float64, d*d), 0.0
	for _, v := range values {
		most = max(most, math.Abs(v))
	}
	var vectors mat.Dense
	eigen.VectorsTo(&vectors)
	for i, v := range values {
		if v < -1e-12*most {
			return nil, fmt.Errorf("matrix A has the eigenvalue %v; want no negative eigenvalue", v)
		}
		for j := range d {
			root[i*d+j] = math.Sqrt(max(v, 0)) * vectors.At(j, i)
		}
	}
	return root, nil
}

// NewForms returns the problem of a file that [ReadForms] has read. It accepts any step size, even if the model then
// diverges. The risk F_k is the squared risk of d rows √d·R_k with targets √d·R_k b_k, where RᵀR = A. Therefore the
// gradient over all rows is A_k(w − b_k), up to rounding.
func NewForms[T learner.Float](f *QuadraticFile, weights []float64) (*Problem[T], error) {
	d := len(f.Agents[0].B)
	held := make([]*learner.Samples[T], len(f.Agents))
	for k := range f.Agents {
		a := &f.Agents[k]
		root, err := a.root(d)
		if err != nil {
			return nil, fmt.Errorf("agents[%d]: %w", k, err)
		}
		x, y := make([]T, d*d), make([]T, d)
		for i := range d {
			target := 0.0
			for j, b := range a.B {
				h := math.Sqrt(float64(d)) * root[i*d+j]
				x[i*d+j] = T(h)
				target += h * b
			}
			y[i] = T(target)
		}
		held[k] = learner.NewSamples(d, x, y)
	}
	p, err := NewSquares(held, 0, weights)
	if err != nil {
		return nil, err
	}
	p.Start, p.Objective.Curvature, p.Objective.Steepest = f.Start, nil, 0
	if f.Start == nil {
		p.Start = make([]float64, d)
	}
	return p, nil
}
