// Package daemon runs an agent or a coordinator from its settings: the state
// folder and its lock, the broker's session, metrics and the log of facts.
package daemon
