// Package agentmetrics turns the events of an agent into the metrics agentd_*.
package agentmetrics
