//go:build !nightly || !linux

package conformance

// others are brokers that are tried each night.
var others []subject
