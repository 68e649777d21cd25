// Package testbed runs a whole federation on this machine, without containers: a coordinator and agents as processes of
// their own, and, where they are installed, Mosquitto with the configuration that we ship, Prometheus with our rules
// and Grafana with our dashboards. It listens on loopback only, on ports that are free. packaging/testbed/README.md
// tells more.
package testbed
