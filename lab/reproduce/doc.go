// Package reproduce runs the experiments of docs/EXPERIMENTS.md, which reproduce the claims of the documents.
//
// An [Experiment] is a struct of settings, with a function that returns the documents' values. Run simulates with the
// daemons' own code and returns a [Report]. A report has values by key, findings that compare a measurement with a
// prediction, and a plot like the document's figure. An experiment holds if all its findings hold.
package reproduce
