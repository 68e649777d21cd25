// Package conformance contains a test suite for MQTT brokers. It runs on the embedded broker, on Mosquitto with our
// shipped configuration, and on Mosquitto with its default configuration. Each night it also runs on NATS, with one and
// with three servers, and on RabbitMQ. Its clients are sessions, the machines of package transfer, and whole agents and
// coordinators. The suite defines the broker behaviour that we accept. Package acltest checks the access rules on the
// same brokers.
//
// To test a new broker, add it to the list of subjects. The tests of connections also run on the broker in memory.
package conformance
