package simulate

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"

	"gonum.org/v1/plot/vg"

	"github.com/fedmesh/fedmesh/lab/plot"
	"github.com/fedmesh/fedmesh/lab/sim"
	"github.com/fedmesh/fedmesh/spec"
)

// writePictures plots each metric and, for FedDec, the graph of devices.
func writePictures(dir string, r *sim.Result) error {
	var errs []error
	for i := range r.Metrics {
		if m := &r.Metrics[i]; len(r.Rounds) > 1 && m.Name != uplinkBytes && m.Name != totalBytes {
			errs = append(errs, plot.WriteFiles(filepath.Join(dir, m.Name), metricFigure(r, m), plot.FigureWidth,
				plot.FigureHeight))
		}
	}
	if r.Network != nil && r.Network.Graph.NodeCount() <= maxDrawn {
		errs = append(errs, plot.WriteFiles(filepath.Join(dir, "graph"), drawnNetwork(r), 14*vg.Centimeter,
			14*vg.Centimeter))
	}
	return errors.Join(errs...)
}

// Metrics that are only used as the axes of a comparison and have no separate plot.
const (
	uplinkBytes = "uplink_bytes"
	totalBytes  = "total_bytes"
)

// maxDrawn is the largest number of devices for which the graph is drawn.
const maxDrawn = 500

// axes maps the name of each metric to its axis label.
var axes = map[string]string{
	"msd": "E‖w⁰ − w‖²", "excess_risk": "J(w) − J(w⁰)", "risk": "J(w)", "gradient_norm2": "‖∇J(w)‖²",
	"consensus": "mean ‖z − mean z‖²", "shadow_excess_risk": "excess risk over the local steps", "r2": "R²",
}

func label(metric string) string {
	if l := axes[metric]; l != "" {
		return l
	}
	return metric
}

// metricFigure returns the plot of a metric over the rounds.
func metricFigure(r *sim.Result, m *sim.Metric) *plot.Figure {
	rounds := make([]float64, len(r.Rounds))
	for i, round := range r.Rounds {
		rounds[i] = float64(round)
	}
	title := r.Experiment.Name
	if m.CI95 != nil {
		title = fmt.Sprintf("%s: mean of %d runs, 95 %% band", title, len(m.Runs))
	}
	f := &plot.Figure{
		Title: title, X: plot.Axis{Label: "round"}, Y: plot.Axis{Label: label(m.Name), Log: spreads(m.Mean)},
		Curves: []plot.Curve{curve(m.Name, rounds, m)},
	}
	if r.Experiment.Algorithm == spec.FedDec {
		f.X.Label = "iteration t"
	}
	return f
}

// curve returns a curve of the metric's mean over x, with its confidence band.
func curve(name string, x []float64, m *sim.Metric) plot.Curve {
	c := plot.Curve{Name: name, X: x, Y: m.Mean}
	for i, half := range m.CI95 {
		c.Low, c.High = append(c.Low, m.Mean[i]-half), append(c.High, m.Mean[i]+half)
	}
	return c
}

// spreads reports whether the values cover such a wide range that a logarithmic axis is suitable.
func spreads(values []float64) bool {
	low, high := 0.0, 0.0
	for _, v := range values {
		if v > 0 && (low == 0 || v < low) {
			low = v
		}
		high = max(high, v)
	}
	return low > 0 && high > 10*low && slices.Min(values) >= 0
}

// drawnNetwork returns the drawing of the first run's graph.
func drawnNetwork(r *sim.Result) plot.Network {
	n, caption := r.Network, "line width: weight of the edge"
	if slices.ContainsFunc(n.EdgeWeights, func(w float64) bool { return w < 0 }) {
		caption += ", dashed: negative"
	}
	p := plot.Network{Graph: n.Graph, Weights: n.EdgeWeights}
	p.Title = fmt.Sprintf("%d devices, %d links", n.Graph.NodeCount(), len(n.EdgeWeights))
	if !math.IsNaN(n.SecondEigenvalue) {
		p.Title += fmt.Sprintf(", |λ₂(E[W²])| = %.3f, α = %.3g", n.SecondEigenvalue, n.Alpha())
	}
	if r.Experiment.Mixing.LinkUp < 1 && n.Health != nil {
		p.Health = n.Health
		caption += fmt.Sprintf("; colour: up in %.0f to %.0f %% of the iterations, red to green from 0 to 100",
			100*slices.Min(n.Health), 100*slices.Max(n.Health))
	}
	p.Caption = caption
	return p
}
