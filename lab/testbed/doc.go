// Package testbed runs a complete federation as separate processes on one machine, without containers. It starts a
// coordinator and agents. If they are installed, it also starts Mosquitto, Prometheus and Grafana with the
// configuration files, rules and dashboards that we ship. All processes listen on free loopback ports. See
// packaging/testbed/README.md.
package testbed
