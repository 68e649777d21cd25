// Command testbed runs a whole federation on this machine, from Debian's
// packages and without containers: Mosquitto with the configuration that we
// ship, a coordinator, agents as processes of their own, and Prometheus with our
// rules. It listens on loopback only, on ports that are free.
//
//	testbed up               until Ctrl-C
//	testbed check            until everything that is watched has data, or not
//	testbed files            only the folder, for those who start the programs otherwise
//
// make testbed and make testbed-check run it; packaging/testbed/README.md tells more.
package main
