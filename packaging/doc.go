// Package packaging holds the files that we ship beside the programs. It embeds
// them, so that a test can hold them against the programs.
package packaging

import _ "embed" // the files

// AgentConfig is the commented sample configuration of agentd, in YAML.
//
//go:embed agentd.yaml
var AgentConfig []byte

// CoordinatorConfig is the commented sample configuration of the coordinator, in
// YAML.
//
//go:embed coordinator.yaml
var CoordinatorConfig []byte
