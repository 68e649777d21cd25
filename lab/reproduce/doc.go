// Package reproduce runs the experiments of docs/EXPERIMENTS.md. They reproduce claims from the publications on which
// fedmesh is based.
//
// An [Experiment] is a struct of settings. A function returns the experiment with the values of the publication. Run
// simulates with the same code as the daemons and returns a [Report]. A report contains values by key, findings that
// compare a measurement with a prediction, and a plot like the figure in the publication. A report holds if all its
// findings hold.
package reproduce
