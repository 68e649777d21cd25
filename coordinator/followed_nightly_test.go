//go:build nightly

package coordinator_test

const followedStride = 1
