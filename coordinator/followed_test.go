//go:build !nightly

package coordinator_test

// followedStride is the interval between tested moments; 1 tests every moment.
const followedStride = 3
