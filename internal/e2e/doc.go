// Package e2e contains end-to-end tests: the programs run as processes with configuration files, on a real Mosquitto.
package e2e
