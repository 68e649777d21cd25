//go:build !nightly || !linux

package conformance

// others are the brokers that are tested nightly.
var others []subject
