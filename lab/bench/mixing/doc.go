// Package mixing measures the speed of mixing between neighbours over a real broker. It compares fifty complete agents
// with fifty plain paho clients that exchange the same bytes on the same graph. Run it with `make bench-mixing`;
// docs/BENCHMARKS.md contains the results.
package mixing
