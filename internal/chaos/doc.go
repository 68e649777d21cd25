// Package chaos injects faults into a federation of finished programs on Mosquitto: kills, broker restarts, full and
// damaged disks, hostile messages, devices that send false updates. Each fault is a test with a promised outcome (see
// the table in docs/RELIABILITY.md). `make chaos` runs all of them and prints the table; `make chaos
// ONLY=kill_coordinator SEED=7` runs one fault with other random times.
package chaos
