package reproduce

import (
	"bytes"

	"gonum.org/v1/plot/vg"

	"github.com/fedmesh/fedmesh/lab/plot"
)

// Plot is a named drawing in a report.
type Plot struct {
	Name string // file name without extension
	plot.Drawing
}

// Graph reports whether the plot is a graph of devices.
func (p Plot) Graph() bool {
	_, graph := p.Drawing.(plot.Network)
	return graph
}

// SVG returns the plot as an SVG image: a figure at page width, a graph at half of it. It returns an error if a figure
// has no points.
func (p Plot) SVG() ([]byte, error) {
	width, height := vg.Length(plot.FigureWidth/2), vg.Length(plot.FigureWidth/2)
	if f, ok := p.Drawing.(*plot.Figure); ok {
		if err := f.Validate(); err != nil {
			return nil, err
		}
		width, height = plot.FigureWidth, plot.FigureHeight
	}
	var b bytes.Buffer
	err := plot.SVG(&b, p.Drawing, width, height)
	return b.Bytes(), err
}

// figure adds a diagram to the report. If its logarithmic axes cannot show any point, for example if all values are 0,
// the axes become linear.
func (r *Report) figure(name string, f plot.Figure) {
	if f.Validate() != nil {
		f.X.Log, f.Y.Log = false, false
	}
	r.Plots = append(r.Plots, Plot{name, &f})
}

// appendTo appends a point with its confidence interval to a curve.
func (e estimate) appendTo(c *plot.Curve, x float64) {
	c.X = append(c.X, x)
	c.Y = append(c.Y, e.mean)
	c.Low = append(c.Low, e.mean-e.halfWidth)
	c.High = append(c.High, e.mean+e.halfWidth)
}
