// Package bench measures the cost of a federated round: the coordinator sends a model to N agents and receives N
// updates. It compares fedmesh with plain paho MQTT clients that move the same bytes over the same broker, and with a
// relay of raw TCP frames. Run it with `fedlab bench`; docs/BENCHMARKS.md contains and explains the results.
//
// All contestants run in one process with N connections each. They take turns, one round each per repetition. The
// benchmark reports the fastest repetition, because other programs may slow down the machine.
//
// A round of fedmesh starts when the agents have computed an update and ends when each agent has received the next
// model. It includes the aggregation, the journal and the invitations. A round of paho or of the relay only sends the
// model and then the updates. With QoS 1, a paho round ends when all updates have arrived and are acknowledged.
package bench
