// Package plot draws the diagrams of simulations and reports as SVG and PNG files, using gonum/plot. agentd does not
// link it.
//
// A [Drawing] draws itself on a canvas. gonum's *plot.Plot implements it, and so does [Network], a graph of devices:
//
//	network := plot.Network{Graph: m.Graph, Weights: m.Weights, Title: "r = 0.35"}
//	err := plot.SVG(file, network, 12*vg.Centimeter, 12*vg.Centimeter)
//
// A [Figure] shows curves with 95 % bands over linear or logarithmic axes. Its colours suit colour-blind readers, and
// theoretical curves are dashed:
//
//	f := &plot.Figure{X: plot.Axis{Label: "round"}, Y: plot.Axis{Label: "E‖w⁰ − w‖²", Log: true}, Curves: curves}
//	if err := f.Validate(); err == nil {
//		err = plot.PNG(file, f, plot.FigureWidth, plot.FigureHeight)
//	}
package plot
