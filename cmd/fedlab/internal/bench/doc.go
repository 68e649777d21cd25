// Package bench measures what our transport costs: a model out to N agents
// and N updates back, against bare paho moving the same bytes over the same
// broker and against a relay of raw TCP frames. `fedlab bench` runs it;
// docs/BENCHMARKS.md has its tables and says how to read them.
//
// All contestants run in one process, each with its own N connections, and
// take turns: one repetition is a round of each, and a figure is the best of
// the repetitions, since others may use the machine. A round has two halves.
// Out ends when every agent has the model; back begins then and ends when both
// ends know: we wait until every agent has heard that its update is accepted,
// paho with QoS 1 until the receiver has all and every publisher its
// acknowledgements.
package bench
