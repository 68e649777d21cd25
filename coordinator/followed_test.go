//go:build !nightly

package coordinator_test

// followedStride is of how many moments one is tried.
const followedStride = 3
