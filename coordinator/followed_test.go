//go:build !nightly

package coordinator_test

// followedStride is the interval between the steps of the coordinator (events, messages and store calls) at which
// TestCoordinatorFollowed kills it; 1 means at every step.
const followedStride = 3
