// Package reproduce runs the experiments of docs/EXPERIMENTS.md: what the documents show, to be reproduced.
//
// An [Experiment] is a struct whose fields are all its numbers; a function of its file returns it with the documents'
// own. Run measures on the simulator, which is the daemons' own code, and returns a [Report]: values by key, findings
// that each compare a measurement with what theory predicts, and the data of a plot like the document's figure. An
// experiment holds if all its findings do.
package reproduce
