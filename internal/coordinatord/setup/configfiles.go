package setup

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"

	"github.com/fedmesh/fedmesh/internal/config"
	"github.com/fedmesh/fedmesh/internal/keys"
	"github.com/fedmesh/fedmesh/packaging"
	"github.com/fedmesh/fedmesh/store"
)

// PackagedConfigDir is the folder in which a package's coordinator looks for its files. What is founded there has the
// packages' paths, for the devices, too; anywhere else all is below the folder.
const PackagedConfigDir = "/etc/coordinator"

// FederationFiles are those of a federation.
type FederationFiles struct {
	CoordinatorConfig string // the configuration
	CoordinatorKey    string
	AgentList         string // the list of the agents' public keys
	AgentConfig       string // the configuration that devices begin with

	// Where devices join, by a broker over TLS; else empty:
	RootKey      string // signs the root document, and nothing else
	MosquittoDir string // the folder for Mosquitto
}

// FederationFilesIn names the files in a folder.
func FederationFilesIn(dir string) FederationFiles {
	return FederationFiles{CoordinatorConfig: filepath.Join(dir, "coordinator.yaml"),
		CoordinatorKey: filepath.Join(dir, "coordinator.key"),
		AgentList:      filepath.Join(dir, "agents.keys"), AgentConfig: filepath.Join(dir, "agentd.yaml")}
}

const agentListHeader = `# The devices that may take part: a line "ID KEY" for each, with the public key that
# "agentd key new" has printed on the device.
`

// WriteFederation writes the files of a federation into a folder, which it makes, and returns their absolute paths.
// sample may be nil. A key and a list of agents that are there stay as they are; configurations are replaced only if
// force is set.
func WriteFederation(dir string, a *Answers, sample *CSVSample, force bool) (FederationFiles, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return FederationFiles{}, err
	}
	f := FederationFilesIn(dir)
	for _, path := range []string{f.CoordinatorConfig, f.AgentConfig} {
		if _, err := os.Lstat(path); !force && !errors.Is(err, fs.ErrNotExist) {
			return f, fmt.Errorf("%s exists already: replace it with --force, or choose another folder with --dir",
				path)
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return f, err
	}
	key, err := f.loadOrCreateCoordinatorKey()
	if err != nil {
		return f, err
	}
	joins := a.usesTokens()
	state := filepath.Join(dir, "state")
	if dir == PackagedConfigDir {
		state = "/var/lib/coordinator"
		if joins { // the service writes the list, and may write nowhere else
			f.AgentList = filepath.Join(state, "agents.keys")
		}
	}
	if _, err := os.Lstat(f.AgentList); errors.Is(err, fs.ErrNotExist) && filepath.Dir(f.AgentList) == dir {
		if err := store.LocalDisk.WriteFileDurably(f.AgentList, []byte(agentListHeader), 0o666); err != nil {
			return f, err
		}
	}
	lead, agent := a.coordinatorConfigValues(), a.agentConfigValues(keys.FormatPublic(keys.Public(key)))
	if joins {
		if err := f.createTrustFiles(dir, a, key); err != nil {
			return f, err
		}
		maps.Copy(lead, a.enrolmentConfigValues(dir, state))
		lead["identity.agents_file"] = f.AgentList
	}
	if dir != PackagedConfigDir {
		lead["state_dir"] = state
		lead["identity.key_file"], lead["identity.agents_file"] = f.CoordinatorKey, f.AgentList
		agent["state_dir"], agent["identity.key_file"] = "state", "agent.key"
		agent["metrics.listen"] = "" // several devices may run on a machine
	}
	if sample != nil {
		for key, value := range map[string]string{"data.delimiter": sample.Delimiter,
			"data.decimal": sample.DecimalSeparator,
			"data.time":    sample.TimeColumn, "data.time_format": sample.TimeFormat} {
			if value != "" {
				agent[key] = value
			}
		}
	}
	return f, errors.Join(
		store.LocalDisk.WriteFileDurably(f.CoordinatorConfig, config.FillSampleConfig(packaging.CoordinatorConfig,
			lead),
			0o666),
		store.LocalDisk.WriteFileDurably(f.AgentConfig, config.FillSampleConfig(packaging.AgentConfig, agent), 0o666))
}

// loadOrCreateCoordinatorKey reads the coordinator's key, or makes it.
func (f *FederationFiles) loadOrCreateCoordinatorKey() (ed25519.PrivateKey, error) {
	key, err := keys.ReadSigningKey(f.CoordinatorKey)
	if errors.Is(err, fs.ErrNotExist) {
		key, err = keys.CreateSigningKeyFile(f.CoordinatorKey)
	}
	return key, err
}
