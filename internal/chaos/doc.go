// Package chaos injects faults into a federation of real programs on Mosquitto: killed processes, broker restarts, full
// and damaged disks, hostile messages and false updates. Each fault is a test with the outcome promised in
// docs/RELIABILITY.md. `make chaos` runs all of them, and `make chaos ONLY=kill_coordinator SEED=7` runs one fault with
// other random times.
package chaos
