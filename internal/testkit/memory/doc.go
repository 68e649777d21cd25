// Package memory is an MQTT broker inside the test process. It has the same interface as a session over the network.
// The package is used by tests, including tests inside a testing/synctest bubble, and by simulations.
//
// The broker supports retained messages, wildcards and wills. It disconnects the older of two clients with the same
// client id. It can lose or delay messages and refuse subscriptions. Each subscriber receives messages in the order of
// publication.
//
// The package runs one goroutine per mailbox and, while messages are delayed, one goroutine for deliveries. The
// goroutines block only on channels and timers, so that the clock of a synctest bubble can advance.
package memory
