// Package daemon contains the parts that both programs need to run as a service. It provides the log, the metrics
// server, the broker session, the status line for the service manager, the readiness check, the watchdog, and the
// reload of the configuration.
package daemon
