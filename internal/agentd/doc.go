// Package agentd runs the agents of a device. It converts agentd.yaml into one agent for each federation of the device,
// and connects each of them to the broker, the log, the metrics, the status page and the HTTP API.
package agentd
