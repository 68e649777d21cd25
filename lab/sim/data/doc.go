// Package data provides the learning problems of the simulator: synthetic models from publications, and data from
// files.
//
// A [Problem] describes the data of K agents and the known properties of the aggregate risk. [Build] creates a Problem
// from a [Spec] in a configuration file. Go code may also create a Problem directly. The seed determines the whole
// instance. The data of an agent are generated again whenever they are needed, so that a million agents need no memory.
package data
