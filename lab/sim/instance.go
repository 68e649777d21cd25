package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/fedmesh/fedmesh/d2d/graph"
	"github.com/fedmesh/fedmesh/lab/sim/data"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/spec"
)

// Instance is the problem and the graph of a run.
type Instance[T learner.Float] struct {
	Problem *data.Problem[T]
	Mixing  *graph.MixingMatrix // mixing matrix for FedDec; nil means no mixing

	replay *drawReplay[T] // recorded draws; nil means new draws
}

// Purposes of random generators, other than the draws of agents.
const (
	seedForPerAgentNumbers uint64 = iota + 101
	forInstance
	forGraph
	forRun
	forAgent
	forLinks
	forAbsence
	forStart
	forAttackers
	forAttack
)

// runSeed returns the seed of a run. The seed of the first run is the seed of the experiment.
func runSeed(seed uint64, run int) uint64 {
	if run == 0 {
		return seed
	}
	return data.Mix(data.Mix(seed, forRun), uint64(run))
}

// instances returns a function that creates the instance of a run. Runs share one instance unless the experiment
// requests a new instance for each run.
func instances[T learner.Float](e Experiment) func(run int) (Instance[T], error) {
	problem := func(seed uint64) (*data.Problem[T], error) {
		return data.Build[T](e.Data, e.Agents, e.weights(), e.WeighRows, data.Mix(seed, forInstance))
	}
	mixing := func(seed uint64, agents int) (*graph.MixingMatrix, error) {
		if e.Algorithm != spec.FedDec {
			return nil, nil
		}
		return e.Mixing.build(agents, rand.New(rand.NewPCG(data.Mix(seed, forGraph), 0)))
	}
	problemOnce := sync.OnceValues(func() (*data.Problem[T], error) { return problem(e.Seed) })
	var mixingOnce func() (*graph.MixingMatrix, error)
	var one sync.Once
	return func(run int) (in Instance[T], err error) {
		seed := runSeed(e.Seed, run)
		if e.Data.Fresh {
			in.Problem, err = problem(seed)
		} else {
			in.Problem, err = problemOnce()
		}
		if err != nil {
			return in, err
		}
		if e.Mixing.Fresh {
			in.Mixing, err = mixing(seed, in.Problem.Agents)
			return in, err
		}
		one.Do(func() {
			mixingOnce = sync.OnceValues(func() (*graph.MixingMatrix, error) {
				return mixing(e.Seed,
					in.Problem.Agents)
			})
		})
		in.Mixing, err = mixingOnce()
		return in, err
	}
}

// weights returns the weight of each agent in any scale, or nil for equal weights.
func (e *Experiment) weights() []float64 {
	if e.Weights.allEqual() {
		return nil
	}
	return e.Weights.Values
}

// build draws or reads a graph of n agents, and computes the edge weights.
func (m Mixing) build(n int, rng *rand.Rand) (*graph.MixingMatrix, error) {
	var g *graph.Graph
	var err error
	switch m.Graph {
	case NoGraph:
		return nil, nil
	case Geographic:
		if g, err = graph.ConnectedGeographicGraph(n, m.Radius, rng); err != nil {
			return nil, &spec.FieldError{Key: "mixing.radius", Problem: connectivityHint(err,
				math.Sqrt(math.Log(float64(n))/(math.Pi*float64(n))))}
		}
	case Random:
		if g, err = graph.ConnectedRandomGraph(n, m.Probability, rng); err != nil {
			return nil, &spec.FieldError{Key: "mixing.probability", Problem: connectivityHint(err,
				math.Log(float64(n))/float64(n))}
		}
	case Ring:
		g = graph.RingGraph(n)
	case Complete:
		g = graph.CompleteGraph(n)
	case GraphFile:
		return m.read(n)
	default:
		return nil, &spec.FieldError{Key: "mixing.graph", Problem: fmt.Sprintf("unknown graph %q", m.Graph)}
	}
	return graph.NewMixingMatrix(g, m.Weights)
}

// connectivityHint adds a hint to the text of err: the value of the parameter from which on most large graphs are
// connected.
func connectivityHint(err error, from float64) string {
	_, problem, _ := strings.Cut(err.Error(), ": ") // remove the configuration key from the text
	return fmt.Sprintf("%s; most graphs are connected from about %.2g upwards", problem, from)
}

// read reads the graph from a file. If the file contains weights, it also reads them.
func (m Mixing) read(n int) (*graph.MixingMatrix, error) {
	text, err := os.ReadFile(m.File)
	if err != nil {
		return nil, &spec.FieldError{Key: "mixing.file", Problem: err.Error()}
	}
	g, weights, err := graph.ParseGraphFile(text, m.File)
	switch {
	case err != nil:
		return nil, &spec.FieldError{Key: "mixing.file", Problem: err.Error()}
	case g.NodeCount() != n:
		return nil, &spec.FieldError{Key: "mixing.file",
			Problem: fmt.Sprintf("%s has %d nodes, but there are %d agents", m.File, g.NodeCount(), n)}
	case g.RequireConnected() != nil:
		return nil, &spec.FieldError{Key: "mixing.file", Problem: fmt.Sprintf("%s: %v", m.File, g.RequireConnected())}
	}
	return weighGraph(g, weights, m.Weights)
}

// weighGraph returns the mixing matrix of a graph. If own is not nil, it contains the edge weights; otherwise the rule
// determines them. If the given weights equal the Metropolis weights, they are treated as a rule, because a rule adapts
// the weights to failing links.
func weighGraph(g *graph.Graph, own []float64, rule spec.EdgeWeightRule) (*graph.MixingMatrix, error) {
	if own != nil && rule != spec.EdgeWeightsMetropolis {
		return graph.NewMixingMatrixFromWeights(g, own)
	}
	m, err := graph.NewMixingMatrix(g, rule)
	if err == nil && own != nil && !slices.Equal(m.EdgeWeights, own) {
		return graph.NewMixingMatrixFromWeights(g, own)
	}
	return m, err
}
