// Package agentmetrics registers the agentd_* metrics of an agent's events and messages.
package agentmetrics
