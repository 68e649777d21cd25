// Package reproduce runs the experiments of the documents (SPEC, "What the documents show, to be reproduced").
//
// An [Experiment] is a struct whose fields are all its numbers; a function named after it gives the instance of SPEC's
// table "Instances". Run measures on the simulator, which is the daemons' own code, and returns a [Report]: the values
// by the keys of that table, findings that each compare a measurement with what theory predicts, and the data of a plot
// like the document's figure. An experiment holds if all its findings do.
package reproduce
