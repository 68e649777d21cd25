//go:build !nightly

package conformance

// modelBytes is the model that 50 agents pull at once. Without TCP_NODELAY,
// as Mosquitto comes, that takes a second for each megabyte.
const modelBytes = 10_000_000
