// Package agentd runs one agent for each federation of a device. It connects each agent to its broker, log, metrics,
// status page and HTTP API.
package agentd
