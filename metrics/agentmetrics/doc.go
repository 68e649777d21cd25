// Package agentmetrics registers the agentd_* metrics and updates them from the events and messages of an agent.
package agentmetrics
