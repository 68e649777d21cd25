// Package plot makes the pictures of simulations and reports, as SVG and PNG, on gonum/plot. agentd does not link it.
//
// What can be drawn is a [Drawing]: gonum's own *plot.Plot is one, and so is a [Network], the graph of devices:
//
//	err := plot.SVG(file, plot.Network{Graph: m.Graph, Weights: m.Weights, Title: "r = 0.35"}, 12*vg.Centimeter, 12*vg.Centimeter)
package plot
