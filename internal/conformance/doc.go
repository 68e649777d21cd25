// Package conformance contains a test suite for MQTT brokers. It defines the broker behaviour that fedmesh accepts. It
// runs on the embedded broker, on Mosquitto with the configuration that we ship, and on Mosquitto with its default
// configuration. Each night it also runs on NATS, with one and with three servers, and on RabbitMQ. The clients of the
// suite are sessions, the state machines of package transfer, and whole agents and coordinators. Package acltest checks
// the access rules on the same brokers.
//
// To test a new broker, add it to the list of subjects. The tests of connections also run on the in-memory broker.
package conformance
