// Package packaging embeds the sample configuration files that are shipped with the programs, so that tests can check
// them.
package packaging

import _ "embed" // The blank import enables go:embed.

// AgentConfig is the sample configuration file of agentd (YAML with comments).
//
//go:embed agentd.yaml
var AgentConfig []byte

// CoordinatorConfig is the sample configuration file of the coordinator (YAML with comments).
//
//go:embed coordinator.yaml
var CoordinatorConfig []byte
