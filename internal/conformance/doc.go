// Package conformance has one suite for brokers, and runs it on each: the embedded broker, Mosquitto as we ship its
// configuration, and Mosquitto as it comes; each night on NATS, alone and three of them, and on RabbitMQ. Its clients
// are ours: sessions, the machines of package transfer, and whole agents and coordinators. The behaviour that we accept
// from a broker is settled here; who may read and write what, by package acltest, on the same brokers.
//
// A broker that is new to us passes when a line for it in the list of subjects makes the suite pass. The part on
// connections holds for the broker in memory, too.
package conformance
