// Package homeassistant contains the add-on of Home Assistant that runs agentd, and tests of it. The nightly test
// TestServerCompose (internal/testkit/machine) builds and runs the add-on.
package homeassistant
