// Package testbed runs a whole federation on this machine, from Debian's
// packages and without containers: Mosquitto with the configuration that we
// ship, a coordinator, agents as processes of their own, and Prometheus with our
// rules. It listens on loopback only, on ports that are free.
// packaging/testbed/README.md tells more.
package testbed
