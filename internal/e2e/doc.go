// Package e2e tests the programs from end to end: as processes, with
// configuration files, on a real Mosquitto. It has tests only; nothing imports
// it.
package e2e
