// Package bench measures what a round costs: a model out to N agents and N
// updates back, by a coordinator and agents as the daemons run them, against bare
// paho moving the same bytes over the same broker and against a relay of raw TCP
// frames. `fedlab bench` runs it; docs/BENCHMARKS.md has its tables and says how
// to read them.
//
// All contestants run in one process, each with its own N connections, and
// take turns: one repetition is a round of each, and a figure is the best of
// the repetitions, since others may use the machine. A round of ours begins when
// the agents, whose local steps cost nothing, have an update. It ends when each
// has heard that its update is accepted, and has the next model: the fold, the
// journal and the invitations lie between. A round of paho and of the relay is
// the model out and then the updates back; paho waits with QoS 1 until the
// receiver has all updates and every publisher its acknowledgements.
package bench
