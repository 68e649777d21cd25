//go:build !nightly

package conformance

// modelBytes is the size of the model that 50 agents pull at once. Without TCP_NODELAY, as in Mosquitto's default
// configuration, a pull takes a second per megabyte.
const modelBytes = 10_000_000
