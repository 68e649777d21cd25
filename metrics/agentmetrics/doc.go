// Package agentmetrics registers the metrics agentd_*: of the events of an agent, and of its messages.
package agentmetrics
