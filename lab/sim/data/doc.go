// Package data provides the learning problems of the simulator: the synthetic models of the documents, and data from
// files.
//
// A [Problem] describes the data of K agents and the known properties of the aggregate risk. [Build] creates a Problem
// from a [Spec] in a configuration file; Go code may also create one directly. The seed determines the whole instance.
// An agent's data are regenerated whenever they are needed, so that a million agents need no memory.
package data
