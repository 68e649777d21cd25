package demo

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"gonum.org/v1/plot/vg"

	"github.com/fedmesh/fedmesh/d2d/graph"
	"github.com/fedmesh/fedmesh/lab/plot"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// drawings returns the plots for the output folder, by file name.
func (m *mixing) drawings() map[string]plot.Drawing {
	all := map[string]plot.Drawing{
		"by-rounds": m.race("by number of server rounds", "server round", false,
			func(i int, p point) float64 { return float64(i + 1) }),
		"by-uplink": m.race("by uplink traffic",
			"uplink traffic", true, func(_ int, p point) float64 { return float64(p.Uplink) }),
		"by-bytes": m.race("by total traffic",
			"uplink traffic and traffic between devices", true,
			func(_ int, p point) float64 { return float64(p.Uplink + p.D2D) }),
		"consensus": m.consensus(),
	}
	if n, ok := m.network(); ok {
		all["graph"] = n
	}
	return all
}

// race plots the loss of FedDec and FedAvg against a cost, such as rounds or bytes.
func (m *mixing) race(title, label string, bytes bool, cost func(i int, p point) float64) *plot.Figure {
	f := &plot.Figure{Title: "FedDec and FedAvg " + title,
		X: plot.Axis{Label: label, Log: bytes, Bytes: bytes},
		Y: plot.Axis{Label: "loss", Log: m.scene.start != 1}}
	for _, c := range []*course{m.mixed, m.alone} {
		curve := plot.Curve{Name: map[spec.Algorithm]string{spec.FedDec: "FedDec", spec.FedAvg: "FedAvg"}[c.algorithm]}
		for i, p := range c.rounds {
			curve.X, curve.Y = append(curve.X, cost(i, p)), append(curve.Y, p.Loss)
		}
		f.Curves = append(f.Curves, curve)
	}
	return f
}

// consensus plots the distance between the agents after each local step of the run.
func (m *mixing) consensus() *plot.Figure {
	a := m.mixed.audit
	a.mu.Lock()
	defer a.mu.Unlock()
	moments := slices.SortedFunc(maps.Keys(a.consensus), func(a, b moment) int {
		return cmp.Or(cmp.Compare(a.round, b.round), cmp.Compare(a.step, b.step))
	})
	curve := plot.Curve{Name: "FedDec"}
	for i, at := range moments {
		curve.X, curve.Y = append(curve.X, float64(i+1)), append(curve.Y, a.consensus[at])
	}
	return &plot.Figure{
		Title: "Distance between the agents' parameters", X: plot.Axis{Label: "local step"},
		Y: plot.Axis{Label: "Σ‖x − x̄‖²", Log: true}, Curves: []plot.Curve{curve},
	}
}

// network draws the agents and the edges of the mixing graph. Each edge shows its weight and the share of flows that
// were applied in time.
func (m *mixing) network() (*plot.Network, bool) {
	mesh := m.mixed.mesh
	if mesh == nil {
		return nil, false
	}
	n := len(m.scene.files.stations)
	g := graph.RingGraph(n)
	if m.scene.places != nil {
		points := make([]graph.Point, n)
		for i, p := range m.scene.places {
			points[i] = graph.Point{X: p.X, Y: p.Y}
		}
		g = graph.GeographicGraph(points, m.scene.mesh.EdgeRadius)
	}
	weights := map[[2]wire.AgentID]float64{}
	for _, e := range mesh.Edges {
		weights[[2]wire.AgentID{e.A, e.B}] = e.MixingWeight
	}
	p := &plot.Network{
		Graph: g, Title: fmt.Sprintf("%d agents, %d edges, |λ₂|² = %.3f", n, len(mesh.Edges), mesh.SecondEigenvalue),
		Caption: "width: weight; colour: share of timely flows, from red (none) to green (all)",
	}
	for _, e := range g.Edges() {
		ids := [2]wire.AgentID{wire.AgentID(m.scene.files.stations[e.I]), wire.AgentID(m.scene.files.stations[e.J])}
		h := m.mixed.account.health[ids]
		p.Weights = append(p.Weights, weights[ids])
		p.Health = append(p.Health, float64(h.flows-h.late)/float64(max(h.could, 1)))
	}
	return p, true
}

// writePlots writes the plots as SVG and PNG.
func (m *mixing) writePlots(dir string) error {
	for name, d := range m.drawings() {
		width, height := vg.Length(plot.FigureWidth), vg.Length(plot.FigureHeight)
		if _, ok := d.(*plot.Network); ok {
			width, height = plot.FigureHeight, plot.FigureHeight+vg.Centimeter
		}
		if err := plot.WriteFiles(filepath.Join(dir, name), d, width, height); err != nil {
			return err
		}
	}
	return nil
}
