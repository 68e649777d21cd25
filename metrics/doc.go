// Package metrics turns facts into Prometheus metrics and serves them.
//
// Agent and Coordinator observe the facts of their program, the round's and the
// host's, and the traffic of its session; nothing below this package knows of a
// metric. A program wires them like this:
//
//	registry := metrics.NewRegistry("agentd")
//	observer := metrics.NewAgent(registry, time.Now, "")
//	server, err := metrics.Listen("127.0.0.1:9464", metrics.Handler(registry, ready))
//
// Labels come from closed sets, whose series all exist from the start with 0;
// an agent's id is never a label, so a fleet of any size costs the same. A gauge
// of something that is not known (yet) has no series instead of a false value.
// docs/METRICS.md lists everything; it is written and checked by a test.
package metrics
