// Package testkit runs federations of the compiled programs in tests. It builds agentd and coordinator, runs them as
// processes, waits for log lines, and writes the configuration of a federation. Package brokers starts the MQTT
// brokers. Tests of any package may import testkit.
package testkit
