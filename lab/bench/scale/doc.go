// Package scale measures the cost of a round for the compiled coordinator with Mosquitto and with a NATS cluster. The
// load comes from thousands of simulated agents in one process, which send real signed and sealed messages with
// prepared updates.
//
// The package fits the CPU cost of each kind of work, such as a hello message, an update or a megabyte. It checks the
// fit with a federation that was not used for fitting, and generates docs/SCALE.md. Run it with `make bench-scale`.
package scale
