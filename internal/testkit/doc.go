// Package testkit launches federations of the finished programs: it builds agentd and coordinator, runs them as
// processes whose logs can be awaited, and writes the files of a federation on any broker (package brokers starts
// those). Tests of any package may import it.
package testkit
