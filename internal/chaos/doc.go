// Package chaos breaks a whole federation of finished programs on Mosquitto, on purpose and again and again: kills, a
// broker that restarts, full and damaged disks, hostile messages, devices that lie. Each fault is a test with its
// promise (docs/RELIABILITY.md has the table). `make chaos` runs all of them and prints the table; `make chaos
// ONLY=kill_coordinator SEED=7` runs one with other moments.
package chaos
