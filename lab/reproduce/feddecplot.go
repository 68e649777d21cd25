package reproduce

import (
	"fmt"
	"math"
	"slices"

	"github.com/fedmesh/fedmesh/d2d/graph"
	"github.com/fedmesh/fedmesh/lab/plot"
	"github.com/fedmesh/fedmesh/lab/theory"
)

// plots draws the graphs of the first instance (Fig. 3 of the FedDec paper) and, for each radius, the geometric mean of
// the error over the instances with its 95 % band (Fig. 4).
func (f *feddecExperiment) plots(r *Report, fields []feddecInstance, tracks []*feddecRiskCurve) {
	for j, radius := range f.Radii {
		m := fields[0].mixings[j]
		weights := m.EdgeWeights
		if slices.Min(weights) == slices.Max(weights) {
			weights = nil
		}
		var health []float64
		if f.LinkUp < 1 {
			health = tracks[1+j].health
		}
		r.Plots = append(r.Plots, Plot{f.Subject.ID + "-graph-" + f.name(j),
			plot.Network{Graph: m.Graph, Weights: weights, Health: health,
				Title: fmt.Sprintf("r = %v, instance 1 of %d", radius, len(fields)),
				Caption: fmt.Sprintf("%d links, |λ₂|² = %.3g, α = %.3g", len(m.EdgeWeights),
					m.SecondEigenvalue(f.LinkUp),
					graph.MixingAlphaOfEigenvalue(m.SecondEigenvalue(f.LinkUp)))}})
	}
	for j, radius := range f.Radii {
		d := plot.Figure{Title: fmt.Sprintf("FedDec and FedAvg, r = %v", radius),
			X: plot.Axis{Label: "iteration t"}, Y: plot.Axis{Label: "(f(z̄) − f*)/(f(0) − f*)", Log: true}}
		for _, t := range tracks {
			switch t.radius {
			case j:
				d.Curves = append(d.Curves, t.curve("FedDec"))
			case -1:
				d.Curves = append(d.Curves, t.curve("FedAvg"))
			}
		}
		r.figure(f.Subject.ID+"-"+f.name(j), d)
	}
}

// curve returns the geometric mean over the instances as a curve with its 95 % band.
func (t *feddecRiskCurve) curve(algorithm string) plot.Curve {
	c := plot.Curve{Name: fmt.Sprintf("%s, H = %d", algorithm, t.serverEvery)}
	for n, logs := range t.logRiskRatios {
		mean, half := theory.Interval95(logs)
		c.X, c.Y = append(c.X, float64(t.t[n])), append(c.Y, math.Exp(mean))
		c.Low, c.High = append(c.Low, math.Exp(mean-half)), append(c.High, math.Exp(mean+half))
	}
	return c
}
