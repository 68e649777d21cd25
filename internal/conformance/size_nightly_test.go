//go:build nightly

package conformance

// modelBytes is the size of the model that 50 agents pull at once.
const modelBytes = 40_000_000
