// Package daemon has what both programs need to run as a service: the log, the metrics server, the session with the
// broker, the status line of the service manager, readiness, the watchdog and reloads.
package daemon
