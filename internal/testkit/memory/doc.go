// Package memory is an MQTT broker within the process, behind the same
// interface as a session over the network. It is for tests, in a
// testing/synctest bubble or not, and for simulations of hosts.
//
// It keeps retained messages, matches wildcards, publishes wills, takes a
// client id over from its older holder, and can lose and delay messages and
// refuse subscriptions. Each subscriber receives in the order of publication.
// The only goroutines are the mailboxes' and, while something is delayed, one for
// the broker; they block on channels and timers only, so the time of a bubble
// can pass.
package memory
