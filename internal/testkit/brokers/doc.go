// Package brokers starts MQTT brokers for tests: Mosquitto with any configuration, the embedded broker and others. Each
// broker is a process with its own address, so that a test can kill it, restart it and measure its memory. The package
// also has a TCP proxy that can be slow or interrupted, and a client that sends raw MQTT packets. Tests of any package
// may import it.
package brokers
