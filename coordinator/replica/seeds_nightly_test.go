//go:build nightly

package replica

const seeds = 10_000
