// Package data makes the problems that the simulator runs on: the synthetic models of the documents, and files.
//
// A [Problem] says what K agents learn from and what is known of the aggregate risk. [Spec] describes one in a
// configuration file, and [Build] makes it; Go code may put one together itself. All of an instance follows from its
// seed: an agent's data are made again whenever they are needed, and a million agents take no memory.
package data
