package settings

import (
	"fmt"
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/internal/config"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// ExternalTrainer is a program of the device's owner, which trains external models.
type ExternalTrainer struct {
	Name           string           `yaml:"name"`    // as tasks call it
	Command        config.OneOrMore `yaml:"command"` // the program and its arguments
	Socket         string           `yaml:"socket"`  // in the place of all from command to network: of a program that runs by itself
	WorkDir        string           `yaml:"dir"`     // where it runs; empty = the state folder
	Env            []string         `yaml:"env"`     // NAME=value
	MemoryLimit    spec.ByteSize    `yaml:"memory"`  // of all its processes; 0 = no limit of its own
	SilenceTimeout time.Duration    `yaml:"timeout"` // the longest silence while it works; 0 = DefaultTrainerTimeout
	AllowsNetwork  bool             `yaml:"network"` // it may use the network
}

// DefaultTrainerTimeout is the default of a trainer's timeout.
const DefaultTrainerTimeout = 10 * time.Minute

// HasOnlyExternalTrainers says that the device has programs, which have rows, and nothing else.
func (a *Agent) HasOnlyExternalTrainers() bool {
	return len(a.Trainers) > 0 && a.Data.Source == data.SourceCSV && a.Data.CSVPath == ""
}

func (c *SettingsChecker) checkExternalTrainers(all []ExternalTrainer) {
	seen := map[string]bool{}
	for i, t := range all {
		key := fmt.Sprintf("trainers[%d].", i)
		c.Require(t.Name != "" && len(t.Name) <= wire.MaxName && !seen[t.Name], key+"name",
			"is %q; want 1 to %d bytes, and each name once", t.Name, wire.MaxName)
		seen[t.Name] = true
		c.Require(t.Socket != "" || len(t.Command) > 0 && t.Command[0] != "", key+"command",
			"is empty; want a program and its arguments, or the key socket")
		c.Require(t.Socket == "" || len(t.Command) == 0 && t.WorkDir == "" && len(t.Env) == 0 && t.MemoryLimit == 0 &&
			!t.AllowsNetwork,
			key+"socket", "is %q, and command, dir, env, memory or network is set: these are of a program that agentd "+
				"starts; remove them or socket", t.Socket)
		for _, e := range t.Env {
			name, _, pair := strings.Cut(e, "=")
			c.Require(pair && name != "", key+"env", "has %q; want NAME=value", e)
		}
		c.Require(t.MemoryLimit >= 0, key+"memory", "must not be negative, is %s", t.MemoryLimit)
		c.Require(t.SilenceTimeout == 0 || t.SilenceTimeout >= minTrainerTimeout && t.SilenceTimeout <= 24*time.Hour,
			key+"timeout",
			"must be %s to 24h, is %s", minTrainerTimeout, t.SilenceTimeout)
	}
}

// minTrainerTimeout leaves a program the time for a word in a third of it.
const minTrainerTimeout = 10 * time.Second
