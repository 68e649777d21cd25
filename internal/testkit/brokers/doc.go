// Package brokers starts the brokers that tests run on: Mosquitto with any
// configuration, and the embedded broker. Each is a process of its own at an
// address of its own, so that a test can kill it, start it again, and look at
// its memory. Beside them are a thin line to a broker, and a client that speaks
// MQTT by hand. Tests of any package may import it.
package brokers
