//go:build !race

package conformance

const racing = false
