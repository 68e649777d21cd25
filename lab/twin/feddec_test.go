package twin

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/d2d"
	"github.com/fedmesh/fedmesh/d2d/graph"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// TestGoldenFedDec replays Algorithm 1 of the FedDec paper with all links, with failing links, and without links
// (FedAvg). It uses the production code for local steps, mixing and aggregation.
func TestGoldenFedDec(t *testing.T) {
	files := 0
	for _, g := range load(t) {
		if !strings.HasPrefix(g.Algorithm, "feddec") {
			continue
		}
		files++
		t.Run(g.Algorithm, func(t *testing.T) {
			p := newPlayer(t, &g)
			z := make([][]float64, len(g.Agents))
			for i := range z {
				z[i] = slices.Clone(g.Start)
			}
			server := slices.Clone(g.Start)
			var got [][]float64
			for i, r := range g.Rounds {
				z = p.mix(p.halves(z, &r, uint64(i)), &r)
				if r.Participants != nil {
					server = p.average(server, z, r.Participants)
					for i := range z {
						copy(z[i], server)
					}
				}
				got = append(got, slices.Concat(z...))
			}
			g.compare(t, got)
		})
	}
	if files != 4 {
		t.Errorf("%d files of feddec, want 4", files)
	}
}

// halves returns the parameters x_i^(t+½) of all agents after a local step (lines 4 and 5 of Algorithm 1). before is
// the number of previous steps.
func (p *player) halves(z [][]float64, r *drawn, before uint64) [][]float64 {
	p.t.Helper()
	half := make([][]float64, len(z))
	for k := range z {
		half[k] = slices.Clone(z[k])
		d := learner.Descent[float64]{Model: p.model, Draws: p.draws(k, r.Steps[k]),
			Schedule: learner.StepSizeSchedule{StrongConvexity: p.StrongConvexity, DecayOffset: p.Gamma}}
		if _, err := d.Run(half[k], 1, 1, before, nil); err != nil {
			p.t.Fatal(err)
		}
	}
	return half
}

// mix mixes the parameters with Metropolis weights over the links that are up (line 6 of Algorithm 1). It compares the
// weights with the matrix W^t in the golden file.
func (p *player) mix(x [][]float64, r *drawn) [][]float64 {
	p.t.Helper()
	var edges []graph.Edge
	for _, e := range p.Edges {
		edges = append(edges, graph.Edge{I: e[0], J: e[1]})
	}
	g, err := graph.New(len(x), edges)
	if err != nil {
		p.t.Fatal(err)
	}
	mixing, err := graph.NewMixingMatrix(g, spec.EdgeWeightsMetropolis)
	if err != nil {
		p.t.Fatal(err)
	}
	weights := make([]float64, len(edges))
	mixing.ComputeActiveWeights(weights, r.Links, make([]int, len(x)))
	for e, w := range weights {
		if i, j := edges[e].I, edges[e].J; math.Abs(w-r.Mixing[i][j]) > 1e-15 || r.Mixing[i][j] != r.Mixing[j][i] {
			p.t.Fatalf("weight %v of edge %v, in the file %v", w, edges[e], r.Mixing[i][j])
		}
	}
	dst := make([][]float64, len(x))
	for i := range dst {
		dst[i] = make([]float64, len(x[i]))
	}
	for i := range x {
		d2d.ClipNodeFlowWeights(weights, i, x, g.Adjacency(), weights, p.Clip)
	}
	d2d.MixAllNodes(dst, x, x, g.Adjacency(), weights)
	return dst
}

// average returns the server's average over the drawn agents (lines 8 and 9 of Algorithm 1). An agent that is drawn
// twice has double weight.
func (p *player) average(base []float64, x [][]float64, draws []int) []float64 {
	p.t.Helper()
	var accepted []round.Participant
	payloads := map[wire.AgentID][]float64{}
	for k := range x {
		times := 0
		for _, d := range draws {
			if d == k {
				times++
			}
		}
		if times == 0 {
			continue
		}
		id := wire.AgentID(fmt.Sprintf("agent-%d", k))
		accepted = append(accepted, round.Participant{Agent: id, DrawCount: times, Weight: 1})
		change := slices.Clone(x[k])
		for j := range change {
			change[j] -= base[j]
		}
		payloads[id] = change
	}
	return p.fold(base, accepted, payloads, &round.Plan{Kind: wire.KindTraining, Exchange: spec.ExchangeParameters},
		spec.WeightInStepSize)
}
