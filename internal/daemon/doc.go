// Package daemon contains the parts that both programs need to run as a service: the log, the metrics server, the
// broker session, the status line for the service manager, readiness, the watchdog and reloads.
package daemon
