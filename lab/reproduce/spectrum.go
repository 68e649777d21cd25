package reproduce

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/fedmesh/fedmesh/d2d/graph"
	"github.com/fedmesh/fedmesh/spec"
)

// spectrumExperiment computes |λ₂|², the squared second eigenvalue of mixing matrices, for connected geographic graphs
// and connected random graphs (Table 1 of the FedDec paper).
type spectrumExperiment struct {
	Nodes         []int     `json:"nodes"`
	Radii         []float64 `json:"radii"`         // radii of geographic graphs in the unit square
	Probabilities []float64 `json:"probabilities"` // link probabilities of random graphs
	Realisations  int       `json:"realisations"`  // number of random graphs per table cell
}

// defaultSpectrum returns the experiment `spectrum` with its default settings.
func defaultSpectrum() *spectrumExperiment {
	return &spectrumExperiment{
		Nodes: []int{10, 20, 40}, Radii: []float64{0.35, 0.5, 0.65}, Probabilities: []float64{0.3, 0.5, 0.7},
		Realisations: 200,
	}
}

// About implements Experiment.
func (s *spectrumExperiment) About() About {
	return About{"spectrum", "|λ₂|² is below 0.9 in all these graphs, so α < 9, and it decreases for denser graphs. " +
		"Table 1 uses the best constant weights.", "feddec Table 1"}
}

// documentedEigenvalues contains the values of Table 1 in the FedDec paper. Each value is a mean over ten graphs.
var documentedEigenvalues = map[string]float64{
	"geo_r0.35_n10": 0.78, "geo_r0.35_n20": 0.87, "geo_r0.35_n40": 0.83,
	"geo_r0.5_n10": 0.7, "geo_r0.5_n20": 0.64, "geo_r0.5_n40": 0.56,
	"geo_r0.65_n10": 0.41, "geo_r0.65_n20": 0.33, "geo_r0.65_n40": 0.34,
	"random_p0.3_n10": 0.7, "random_p0.3_n20": 0.62, "random_p0.3_n40": 0.4,
	"random_p0.5_n10": 0.42, "random_p0.5_n20": 0.29, "random_p0.5_n40": 0.17,
	"random_p0.7_n10": 0.25, "random_p0.7_n20": 0.13, "random_p0.7_n40": 0.083,
}

const documentedRuns = 10

// spectrumRule is an edge weight rule with its name in keys.
type spectrumRule struct {
	key  string
	rule spec.EdgeWeightRule
}

// spectrumRules lists the edge weight rules. The rule of the FedDec paper is first and the fastest rule is last.
var spectrumRules = []spectrumRule{{"best", spec.EdgeWeightsBestConstant}, {"metropolis", spec.EdgeWeightsMetropolis},
	{"maxdegree", spec.EdgeWeightsMaxDegree}, {"fastest", spec.EdgeWeightsFastest}}

// graphKind is a family of random graphs with one parameter: the radius or the link probability.
type graphKind struct {
	key, parameter, what string
	levels               []float64
	draw                 func(n int, level float64, rng *rand.Rand) (*graph.Graph, error)
}

func (s *spectrumExperiment) kinds() []graphKind {
	return []graphKind{
		{"geo", "r", "Geographic", s.Radii, graph.ConnectedGeographicGraph},
		{"random", "p", "Random", s.Probabilities, graph.ConnectedRandomGraph},
	}
}

// spectrumCell is a cell of the table. It holds the squared second eigenvalue |λ₂|² for each rule and each random
// graph. All rules use the same graphs. The value is NaN if the fastest weights of a graph cannot be computed.
type spectrumCell struct {
	kind              graphKind
	level             float64
	nodes             int
	secondEigenvalues [][]float64 // squared second eigenvalue |λ₂|², indexed by rule and random graph
}

func (c *spectrumCell) key() string {
	return fmt.Sprintf("%s_%s%s_n%d", c.kind.key, c.kind.parameter, strconv.FormatFloat(c.level, 'g', -1, 64), c.nodes)
}

func (c *spectrumCell) String() string {
	return fmt.Sprintf("%s, %s = %v, n = %d", strings.ToLower(c.kind.what), c.kind.parameter, c.level, c.nodes)
}

// hasRuleWeights reports whether the weights of a rule could be computed for all graphs of the cell.
func (c *spectrumCell) hasRuleWeights(rule int) bool {
	return !slices.ContainsFunc(c.secondEigenvalues[rule], math.IsNaN)
}

// realise draws random graph number i and computes the squared second eigenvalue |λ₂|² for all rules.
func (c *spectrumCell) realise(i int, rng *rand.Rand) error {
	g, err := c.kind.draw(c.nodes, c.level, rng)
	if err != nil {
		return fmt.Errorf("spectrum: %w", err)
	}
	for k, r := range spectrumRules {
		m, err := graph.NewMixingMatrix(g, r.rule)
		switch {
		case errors.Is(err, graph.ErrTooManyEdges):
			c.secondEigenvalues[k][i] = math.NaN()
		case err != nil:
			return fmt.Errorf("spectrum: %w", err)
		default:
			c.secondEigenvalues[k][i] = m.SecondEigenvalue(1)
		}
	}
	return nil
}

// Run implements Experiment. Each random graph is drawn with its own random generator.
func (s *spectrumExperiment) Run(ctx context.Context, o Options) (*Report, error) {
	if s.Realisations < 2 || slices.ContainsFunc(s.Nodes, func(n int) bool { return n < 2 }) {
		return nil, errors.New("spectrum: requires at least two realisations of graphs with at least two nodes")
	}
	if len(s.Nodes) == 0 || len(s.Radii)+len(s.Probabilities) == 0 {
		return nil, errors.New("spectrum: requires a number of nodes and a radius or a probability")
	}
	runs := o.fullOrQuickCount(s.Realisations, 16)
	cells := s.cells(runs)
	errs := make([]error, len(cells)*runs)
	err := inParallel(ctx, len(errs), func(i int) {
		errs[i] = cells[i/runs].realise(i%runs, rand.New(rand.NewPCG(o.Seed, uint64(i/runs)<<32|uint64(i%runs))))
	})
	if err = errors.Join(err, firstOf(errs)); err != nil {
		return nil, err
	}
	return s.report(cells), nil
}

func firstOf(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// cells returns the empty cells of the table, ordered by kind, parameter and number of nodes.
func (s *spectrumExperiment) cells(runs int) []*spectrumCell {
	var cells []*spectrumCell
	for _, kind := range s.kinds() {
		for _, level := range kind.levels {
			for _, n := range s.Nodes {
				c := &spectrumCell{kind: kind, level: level, nodes: n}
				for range spectrumRules {
					c.secondEigenvalues = append(c.secondEigenvalues, make([]float64, runs))
				}
				cells = append(cells, c)
			}
		}
	}
	return cells
}
