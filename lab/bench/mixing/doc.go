// Package mixing measures, in its benchmark, how fast neighbours mix over a
// real broker: fifty agents with all that agentd does, against as many clients
// of bare paho that pass the same bytes round the same graph. `make
// bench-mixing` runs it; docs/BENCHMARKS.md has its table.
package mixing
