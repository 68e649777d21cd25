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

// ExternalTrainer configures an external program that trains models.
type ExternalTrainer struct {
	Name    string           `yaml:"name"`    // name by which tasks select the trainer
	Command config.OneOrMore `yaml:"command"` // command line of the program
	// Socket is the path of the socket of a program that is already running. It cannot be combined with the fields
	// Command to AllowsNetwork.
	Socket      string        `yaml:"socket"`
	WorkDir     string        `yaml:"dir"`    // working directory; empty means the state folder
	Env         []string      `yaml:"env"`    // environment variables as NAME=value
	MemoryLimit spec.ByteSize `yaml:"memory"` // memory limit of the program with its child processes; 0 means no limit
	// SilenceTimeout is the maximum time between two messages while the program works. Zero means
	// DefaultTrainerTimeout.
	SilenceTimeout time.Duration `yaml:"timeout"`
	AllowsNetwork  bool          `yaml:"network"` // true if the program may use the network
}

// DefaultTrainerTimeout is the timeout if SilenceTimeout is zero.
const DefaultTrainerTimeout = 10 * time.Minute

// HasOnlyExternalTrainers reports whether the device has no data of its own and only external trainers, which bring
// their own rows.
func (a *Agent) HasOnlyExternalTrainers() bool {
	return len(a.Trainers) > 0 && a.Data.Source == data.SourceCSV && a.Data.CSVPath == ""
}

func (c *SettingsChecker) checkExternalTrainers(all []ExternalTrainer) {
	seen := map[string]bool{}
	for i, t := range all {
		key := fmt.Sprintf("trainers[%d].", i)
		c.Require(t.Name != "" && len(t.Name) <= wire.MaxName && !seen[t.Name], key+"name",
			"is %q, but must be a unique name of 1 to %d bytes", t.Name, wire.MaxName)
		seen[t.Name] = true
		c.Require(t.Socket != "" || len(t.Command) > 0 && t.Command[0] != "", key+"command",
			"must not be empty: set it to a program and its arguments, or set the key socket instead")
		c.Require(t.Socket == "" || len(t.Command) == 0 && t.WorkDir == "" && len(t.Env) == 0 && t.MemoryLimit == 0 &&
			!t.AllowsNetwork,
			key+"socket", "is %q, but command, dir, env, memory or network is also set: these keys apply only to a "+
				"program that agentd starts: remove either these keys or the key socket", t.Socket)
		for _, e := range t.Env {
			name, _, pair := strings.Cut(e, "=")
			c.Require(pair && name != "", key+"env", "contains %q, but each entry must have the form NAME=value", e)
		}
		c.Require(t.MemoryLimit >= 0, key+"memory", "must not be negative, but is %s", t.MemoryLimit)
		c.Require(t.SilenceTimeout == 0 || t.SilenceTimeout >= minTrainerTimeout && t.SilenceTimeout <= 24*time.Hour,
			key+"timeout",
			"must be between %s and 24h, but is %s", minTrainerTimeout, t.SilenceTimeout)
	}
}

// minTrainerTimeout is the minimum of SilenceTimeout. During its work, a program should send a message at least three
// times per timeout.
const minTrainerTimeout = 10 * time.Second
