//go:build nightly

package replica

const seeds = 3000
