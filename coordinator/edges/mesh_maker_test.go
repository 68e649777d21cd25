package edges

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/coordinator/meshplan"
	"github.com/fedmesh/fedmesh/d2d/graph"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// onALine returns n agents at positions 0, 1, 2, … on a line. The function more may modify each of them.
func onALine(n int, more func(i int, a *round.MixingAgent)) []round.MixingAgent {
	all := make([]round.MixingAgent, n)
	for i := range all {
		all[i] = round.MixingAgent{ID: wire.AgentID(fmt.Sprintf("a%02d", i)), CanMix: true,
			Location: wire.AgentLocation{IsKnown: true, X: float64(i)}}
		if more != nil {
			more(i, &all[i])
		}
	}
	return all
}

func names(m meshplan.MixingGraph) string {
	var all []string
	for _, e := range m.Edges {
		all = append(all, fmt.Sprintf("%s-%s*%.3g", e.A, e.B, e.MixingWeight))
	}
	return strings.Join(all, " ")
}

func TestMake(t *testing.T) {
	file, _, err := graph.ParseGraphFile([]byte("from,to\na00,a02\na02,zz\na01,a02\n"), "edges.csv")
	if err != nil {
		t.Fatal(err)
	}
	star, _, err := graph.ParseGraphFile([]byte("from,to\na00,a01\na00,a02\na00,a03\na00,a04\n"), "star.csv")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		maker  MeshMaker
		agents []round.MixingAgent
		want   string
		lambda float64
		parts  int
	}{
		{"ring", MeshMaker{EdgeSource: spec.EdgesRing}, onALine(3, nil), "a00-a01*0.333 a00-a02*0.333 a01-a02*0.333",
			0, 1},
		{"two that avoid each other", MeshMaker{EdgeSource: spec.EdgesRing}, onALine(3, func(i int,
			a *round.MixingAgent) {
			if i == 0 {
				a.AvoidedAgents = []wire.AgentID{"a02"}
			}
		}), "a00-a01*0.333 a01-a02*0.333", 4. / 9, 1},
		{"radius", MeshMaker{EdgeSource: spec.EdgesRadius, Radius: 1.5},
			onALine(3, nil), "a00-a01*0.333 a01-a02*0.333", 4. / 9, 1},
		{"best constant of a path", MeshMaker{EdgeSource: spec.EdgesRadius, Radius: 1.5,
			WeightRule: spec.EdgeWeightsBestConstant},
			onALine(3, nil),
			"a00-a01*0.5 a01-a02*0.5", 0.25, 1},
		{"file", MeshMaker{EdgeSource: spec.EdgesFile, ConfiguredGraph: file}, onALine(3, nil),
			"a00-a02*0.333 a01-a02*0.333", 4. / 9, 1},
		{"two do not mix", MeshMaker{EdgeSource: spec.EdgesRing},
			onALine(4, func(i int, a *round.MixingAgent) { a.CanMix = i%2 == 0 }),
			"a00-a02*0.5", 0, 1},
		{"in two parts", MeshMaker{EdgeSource: spec.EdgesRadius, Radius: 1.5, WeightRule: spec.EdgeWeightsFastest},
			onALine(5, func(i int, a *round.MixingAgent) { a.Location.X += float64(10 * (i / 3)) }),
			"a00-a01*0.5 a01-a02*0.5 a03-a04*0.5", 1, 2},
		// The fastest constant edge weight of a star with n rays is 2/(1 + n), here 0.4. The four edges of the hub
		// would then weigh 1.6 together.
		{"fastest of a star", MeshMaker{EdgeSource: spec.EdgesFile, ConfiguredGraph: star,
			WeightRule: spec.EdgeWeightsFastest},
			onALine(5, nil),
			"a00-a01*0.25 a00-a02*0.25 a00-a03*0.25 a00-a04*0.25", 9. / 16, 1},
		{"discovered", MeshMaker{EdgeSource: spec.EdgesDiscovered}, onALine(4, func(i int, a *round.MixingAgent) {
			a.Neighbors = [][]wire.AgentID{{"a01", "a02", "zz"}, {"a00", "a03"}, {"a00"}, {"a00", "a03"}}[i]
		}), "a00-a01*0.333 a00-a02*0.333", 1, 2},
		{"nobody mixes", MeshMaker{EdgeSource: spec.EdgesRing},
			onALine(2, func(_ int, a *round.MixingAgent) { a.CanMix = false }), "", 1, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.maker.WeightRule == "" {
				tt.maker.WeightRule = spec.EdgeWeightsMetropolis
			}
			m, err := tt.maker.MakeMesh(tt.agents)
			if err != nil {
				t.Fatal(err)
			}
			if got := names(m); got != tt.want {
				t.Errorf("edges %s\nwant  %s", got, tt.want)
			}
			if math.Abs(m.SecondEigenvalue-tt.lambda) > 1e-6 || len(m.ConnectedComponents) != tt.parts {
				t.Errorf("|λ₂| = %g, parts %v, want %g and %d parts", m.SecondEigenvalue, m.ConnectedComponents,
					tt.lambda, tt.parts)
			}
			if apart := tt.parts != 1; math.IsInf(m.EigenvalueRatio, 1) != apart || apart && m.SecondEigenvalue != 1 {
				t.Errorf("|λ₂| = %v and α = %v of %d parts", m.SecondEigenvalue, m.EigenvalueRatio, tt.parts)
			}
		})
	}
}

// TestMakeForAFleet checks that the memory for the graph is proportional to the number of edges, not to the square of
// the number of agents.
func TestMakeForAFleet(t *testing.T) {
	agents := onALine(2_000, func(i int, a *round.MixingAgent) {
		a.ID = wire.AgentID(fmt.Sprintf("a%05d", i))
		a.Location.X = 10 * float64(i/100)
		a.Location.Y = float64(i%100) / 100
	})
	for _, rule := range []spec.EdgeWeightRule{spec.EdgeWeightsMetropolis, spec.EdgeWeightsBestConstant} {
		m, err := (&MeshMaker{EdgeSource: spec.EdgesRadius, Radius: 0.055, WeightRule: rule}).MakeMesh(agents)
		if err != nil || len(m.ConnectedComponents) != 20 || len(m.Edges) != 20*(99+98+97+96+95) ||
			m.SecondEigenvalue != 1 {
			t.Errorf("%v: %d parts, %d edges, |λ₂| = %v, error %v", rule, len(m.ConnectedComponents), len(m.Edges),
				m.SecondEigenvalue, err)
		}
	}
	m, err := (&MeshMaker{EdgeSource: spec.EdgesRing, WeightRule: spec.EdgeWeightsBestConstant}).MakeMesh(agents)
	if err != nil || len(m.ConnectedComponents) != 1 || m.SecondEigenvalue >= 1 || m.SecondEigenvalue < 0.99 {
		t.Errorf("a ring: %d parts, |λ₂| = %v, error %v", len(m.ConnectedComponents), m.SecondEigenvalue, err)
	}
}

func TestMakeTells(t *testing.T) {
	m, err := (&MeshMaker{EdgeSource: spec.EdgesRadius, Radius: 1.5,
		WeightRule: spec.EdgeWeightsMetropolis}).MakeMesh(onALine(4,
		func(i int, a *round.MixingAgent) { a.Location.IsKnown = i > 0 }))
	if err != nil || fmt.Sprint(m.UnlocatedAgents) != "[a00]" || m.MixingAgents != 3 {
		t.Errorf("%+v, %v", m, err)
	}
	if _, err := (&MeshMaker{EdgeSource: spec.EdgesComplete}).MakeMesh(onALine(200, nil)); err == nil ||
		!strings.Contains(err.Error(), "199 neighbours") {
		t.Errorf("a graph that is too dense: %v", err)
	}
	if _, err := (&MeshMaker{}).MakeMesh(onALine(2, nil)); err == nil {
		t.Error("no shape, and no error")
	}
}

// TestNewRefusesWeights checks that a graph file with edge weights is rejected, because the weights would be ignored.
func TestNewRefusesWeights(t *testing.T) {
	file := filepath.Join(t.TempDir(), "edges.csv")
	for text, says := range map[string]string{"from,to\na,b\n": "",
		"from,to,weight\na,b,0.5\n": "remove the weights", "nonsense\n": "edges.csv:1:1"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := New(spec.EdgesFile, 0, file, "metropolis"); (err == nil) != (says == "") || err != nil &&
			!strings.Contains(err.Error(), says) {
			t.Errorf("%q: error %v, want %q", text, err, says)
		}
	}
}
