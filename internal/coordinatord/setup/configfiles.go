package setup

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/fedmesh/fedmesh/internal/config"
	"github.com/fedmesh/fedmesh/internal/coordinatord/agentlist"
	"github.com/fedmesh/fedmesh/internal/keys"
	"github.com/fedmesh/fedmesh/packaging"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// PackagedConfigDir is the configuration folder of an installed package. A federation created there uses the package's
// paths, including those on the devices. A federation created elsewhere keeps all its files below its folder.
const PackagedConfigDir = "/etc/coordinator"

// FederationFiles contains the paths of a federation's files.
type FederationFiles struct {
	CoordinatorConfig string
	CoordinatorKey    string
	AgentList         string // list of the agents' public keys
	AgentConfig       string // template for the devices' agentd.yaml

	// The fields below are empty unless the broker uses TLS.
	RootKey      string // key that signs the root document
	MosquittoDir string // folder with the files for Mosquitto
}

// FederationFilesIn returns the paths of a federation's files in a folder.
func FederationFilesIn(dir string) FederationFiles {
	return FederationFiles{CoordinatorConfig: filepath.Join(dir, "coordinator.yaml"),
		CoordinatorKey: filepath.Join(dir, "coordinator.key"),
		AgentList:      filepath.Join(dir, "agents.keys"), AgentConfig: filepath.Join(dir, "agentd.yaml")}
}

const agentListHeader = `# The devices that may join the federation. Each line contains "ID KEY", with the public
# key that "agentd key new" has printed on the device.
`

// WriteFederation writes the files of a federation into a folder and returns their absolute paths. It creates the
// folder if necessary. sample may be nil. An existing key or list of agents is kept. Configurations are replaced only
// if force is set.
func WriteFederation(dir string, a *Answers, sample *CSVSample, force bool) (FederationFiles, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return FederationFiles{}, err
	}
	f := FederationFilesIn(dir)
	for _, path := range []string{f.CoordinatorConfig, f.AgentConfig} {
		if _, err := os.Lstat(path); !force && !errors.Is(err, fs.ErrNotExist) {
			return f, fmt.Errorf("%s already exists: replace it with --force, or choose another folder with --dir",
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
		if joins { // the service edits the list, and may write only to its state folder
			f.AgentList = filepath.Join(state, "agents.keys")
		}
	}
	if _, err := os.Lstat(f.AgentList); errors.Is(err, fs.ErrNotExist) && filepath.Dir(f.AgentList) == dir {
		if err := store.LocalDisk.WriteFileDurably(f.AgentList, []byte(agentListHeader), 0o666); err != nil {
			return f, err
		}
	}
	if err := a.addDevices(f.AgentList); err != nil {
		return f, err
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
		agent["metrics.listen"] = "" // disabled, because several devices may share a machine
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
	agentSample := packaging.AgentConfig
	if a.Discovered != nil {
		agentSample = withoutDataSections(agentSample)
	}
	return f, errors.Join(
		store.LocalDisk.WriteFileDurably(f.CoordinatorConfig, config.FillSampleConfig(packaging.CoordinatorConfig,
			lead),
			0o666),
		store.LocalDisk.WriteFileDurably(f.AgentConfig, config.FillSampleConfig(agentSample, agent), 0o666))
}

// addDevices adds the devices of DeviceKeys to a list of agents. It returns an error if the list contains a device or a
// key in another combination.
func (a *Answers) addDevices(list string) error {
	for _, line := range a.DeviceKeys {
		id, text, _ := strings.Cut(line, " ")
		key, err := keys.ParsePublic(text)
		if err != nil {
			return err
		}
		found, err := agentlist.LookupAgentAndKey(list, wire.AgentID(id), key)
		switch {
		case err != nil:
			return err
		case found.KeyHolder == wire.AgentID(id): // the device is in the list
			continue
		case found.KeyHolder != "":
			return fmt.Errorf("--device %s: %s contains this key for the device %s: remove that line", id, list,
				found.KeyHolder)
		case found.AgentKey != nil:
			return fmt.Errorf("--device %s: %s contains this device with a different key: remove that line", id, list)
		}
		if err := agentlist.EditListFile(store.LocalDisk, list, nil, wire.AgentID(id), key); err != nil {
			return err
		}
	}
	return nil
}

// withoutDataSections returns the sample configuration of an agent without the sections that `agentd discover`
// proposes for each device. The user appends these.
func withoutDataSections(sample []byte) []byte {
	var kept []string
	isInSection := false
	for line := range strings.SplitSeq(string(sample), "\n") {
		if name, _, isKey := strings.Cut(line, ":"); isKey && name != "" && !strings.ContainsAny(name[:1], " #") {
			isInSection = name == "data" || name == "readings" || name == "predict"
		}
		if !isInSection {
			kept = append(kept, line)
		}
	}
	return []byte(strings.Join(kept,
		"\n") + "\n# The sections data, readings and predict of this device, as proposed " +
		"by agentd discover --write:\n")
}

// loadOrCreateCoordinatorKey reads the coordinator's key and creates it if it does not exist.
func (f *FederationFiles) loadOrCreateCoordinatorKey() (ed25519.PrivateKey, error) {
	key, err := keys.ReadSigningKey(f.CoordinatorKey)
	if errors.Is(err, fs.ErrNotExist) {
		key, err = keys.CreateSigningKeyFile(f.CoordinatorKey)
	}
	return key, err
}
