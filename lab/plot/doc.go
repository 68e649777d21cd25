// Package plot makes the pictures of simulations and reports, as SVG and PNG, on gonum/plot. agentd does not link it.
//
// A [Drawing] can be drawn: gonum's own *plot.Plot is one, and so is a [Network], the graph of devices:
//
//	network := plot.Network{Graph: m.Graph, Weights: m.Weights, Title: "r = 0.35"}
//	err := plot.SVG(file, network, 12*vg.Centimeter, 12*vg.Centimeter)
//
// A [Figure] is curves with 95 % bands over linear or logarithmic axes, in colours that people tell apart who see fewer
// of them, and with dashes for theory:
//
//	f := &plot.Figure{X: plot.Axis{Label: "round"}, Y: plot.Axis{Label: "E‖w⁰ − w‖²", Log: true}, Curves: curves}
//	if err := f.Validate(); err == nil {
//		err = plot.PNG(file, f, plot.FigureWidth, plot.FigureHeight)
//	}
package plot
