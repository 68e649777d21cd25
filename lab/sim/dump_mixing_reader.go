package sim

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/fedmesh/fedmesh/d2d/graph"
)

// mixing reads the mixing graph from graph.json, W.npy or both files. It takes the weights from W.npy if this file
// exists. If W.npy contains one matrix per iteration, weights contains the edge weights of all iterations. Otherwise
// weights is nil.
func (l *arrayReader) mixing(e *Experiment, n int) (m *graph.MixingMatrix, weights []float64) {
	g, own := l.graph(n)
	w, each := l.matrices(n, e.Rounds-1)
	if l.err != nil || g == nil && w == nil {
		return nil, nil // there is no mixing, or l.err is set
	}
	var err error
	if w != nil {
		edges := nonzero(w, n)
		if g == nil {
			g, err = graph.New(n, edges)
		}
		if err == nil {
			m, weights, err = l.weighted(g, edges, w, n)
		}
	}
	if err == nil && (w == nil || each && own != nil) {
		m, err = weighGraph(g, own, e.Mixing.Weights)
	}
	if err != nil {
		l.err = fmt.Errorf("%s: %w", l.dir, err)
	}
	if !each {
		weights = nil
	}
	return m, weights
}

// has reports whether the folder of the dump contains the named file.
func (l *arrayReader) has(name string) bool {
	_, err := os.Stat(filepath.Join(l.dir, name))
	return err == nil
}

// graph reads the file graph.json of a dump. graph returns nil if the file does not exist.
func (l *arrayReader) graph(n int) (*graph.Graph, []float64) {
	path := filepath.Join(l.dir, fileGraph)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || l.err != nil {
		return nil, nil
	}
	var g *graph.Graph
	var weights []float64
	if err == nil {
		g, weights, err = graph.ParseGraphFile(text, path)
	}
	if err == nil && g.NodeCount() != n {
		err = fmt.Errorf("%s has %d nodes, but there are %d agents", path, g.NodeCount(), n)
	}
	if err != nil {
		l.err = err
		return nil, nil
	}
	return g, weights
}

// matrices reads the file W.npy of a dump, which contains one mixing matrix, or one matrix per iteration. matrices
// returns nil if the file does not exist.
func (l *arrayReader) matrices(n, iterations int) (w []float64, each bool) {
	one := &arrayReader{dir: l.dir, err: l.err}
	if w, _ = readArray[float64](one, arrayW, n, n); one.err == nil {
		return w, false
	}
	w, _ = readArray[float64](l, arrayW, iterations, n, n)
	return w, true
}

// nonzero returns the edges that have a nonzero weight in any of the matrices.
func nonzero(w []float64, n int) []graph.Edge {
	var edges []graph.Edge
	for i := range n {
		for j := i + 1; j < n; j++ {
			for at := i*n + j; at < len(w); at += n * n {
				if w[at] != 0 {
					edges = append(edges, graph.Edge{I: i, J: j})
					break
				}
			}
		}
	}
	return edges
}

// weighted returns the mixing matrix of graph g, with edge weights from the matrices w.
func (l *arrayReader) weighted(g *graph.Graph, edges []graph.Edge, w []float64, n int) (*graph.MixingMatrix, []float64,
	error) {
	for _, e := range edges {
		if !slices.Contains(g.Edges(), e) {
			return nil, nil, fmt.Errorf("graph.json has no edge between %d and %d, but they mix in W.npy", e.I, e.J)
		}
	}
	var weights []float64
	for t := 0; t*n*n < len(w); t++ {
		step := w[t*n*n:][:n*n]
		if err := doublyStochastic(step, n); err != nil {
			return nil, nil, fmt.Errorf("matrix %d of W.npy %w", t, err)
		}
		for _, e := range g.Edges() {
			weights = append(weights, step[e.I*n+e.J])
		}
	}
	m, err := graph.NewMixingMatrixFromWeights(g, weights[:len(g.Edges())])
	return m, weights, err
}

// doublyStochastic returns an error unless the n×n matrix is symmetric and each row sums to 1.
func doublyStochastic(w []float64, n int) error {
	for i := range n {
		sum := 0.0
		for j := range n {
			if !(math.Abs(w[i*n+j]-w[j*n+i]) <= 1e-12) {
				return fmt.Errorf("is not symmetric: W[%d, %d] is %v, but W[%d, %d] is %v", i, j, w[i*n+j], j, i,
					w[j*n+i])
			}
			sum += w[i*n+j]
		}
		if !(math.Abs(sum-1) <= 1e-9) {
			return fmt.Errorf("is not doubly stochastic: the sum of row %d is %v", i, sum)
		}
	}
	return nil
}
