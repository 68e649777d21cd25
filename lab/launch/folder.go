package launch

import (
	"bytes"
	"crypto/subtle"
	"fmt"
	"os"
	"path/filepath"

	"github.com/fedmesh/fedmesh/internal/keys"
)

// Coordinator is the name of the coordinator in file names, unless there are several.
const Coordinator = "coordinator"

// Folder is the directory of a federation:
//
//	coordinator.key, coordinator.yaml, agents.keys, state/
//	NAME.yaml, NAME.keys, state-NAME/    for each of several coordinators
//	ID.key, ID.yaml, state-ID/           for each agent
//	passwords/USER                       for each user of the broker
type Folder struct {
	Dir            string
	Name           string // of the federation
	CoordinatorKey string // public
}

// NewFolder creates the key of the coordinator in dir, which must exist.
func NewFolder(dir, name string) (*Folder, error) {
	f := &Folder{Dir: dir, Name: name}
	key, err := keys.CreateSigningKeyFile(f.KeyFile(Coordinator))
	if err != nil {
		return nil, err
	}
	f.CoordinatorKey = keys.FormatPublic(keys.Public(key))
	return f, nil
}

// Path returns the path of a file.
func (f *Folder) Path(name string) string { return filepath.Join(f.Dir, name) }

// KeyFile returns the path of the private key of an agent or a coordinator.
func (f *Folder) KeyFile(id string) string { return f.Path(id + ".key") }

// StateDir returns the state directory of an agent or a coordinator.
func (f *Folder) StateDir(id string) string {
	if id == Coordinator {
		return f.Path("state")
	}
	return f.Path("state-" + id)
}

// AgentsFile returns the path of a coordinator's list of agents. Each of several coordinators has its own copy.
func (f *Folder) AgentsFile(coordinator string) string {
	if coordinator == Coordinator {
		return f.Path("agents.keys")
	}
	return f.Path(coordinator + ".keys")
}

// Put writes a file, and the directory of the file.
func (f *Folder) Put(name string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(f.Path(name)), 0o700); err != nil {
		return err
	}
	return os.WriteFile(f.Path(name), content, 0o600)
}

// NewAgent creates the key of an agent, and returns the line of the agent in the coordinator's list.
func (f *Folder) NewAgent(id string) (line string, err error) {
	key, err := keys.CreateSigningKeyFile(f.KeyFile(id))
	if err != nil {
		return "", err
	}
	return id + " " + keys.FormatPublic(keys.Public(key)) + "\n", nil
}

// PasswordFile returns the path of the password of a user of the broker.
func (f *Folder) PasswordFile(user string) string { return f.Path(filepath.Join("passwords", user)) }

// PutPassword writes the password of a user of the broker.
func (f *Folder) PutPassword(user, password string) error {
	return f.Put(filepath.Join("passwords", user), []byte(password+"\n"))
}

// Authenticate reports whether a user has this password. It is for the option of the same name of an embedded broker.
func (f *Folder) Authenticate(_, user, password string) bool {
	if filepath.Base(user) != user {
		return false
	}
	want, err := os.ReadFile(f.PasswordFile(user))
	return err == nil && subtle.ConstantTimeCompare(bytes.TrimSpace(want), []byte(password)) == 1
}

// ConfigFile returns the path of the configuration of an agent or a coordinator.
func (f *Folder) ConfigFile(id string) string { return f.Path(id + ".yaml") }

// AgentYAML returns the configuration of an agent. broker and more are in YAML.
func (f *Folder) AgentYAML(id, broker, more string) string {
	return fmt.Sprintf("federation: %s\nid: %s\nstate_dir: %s\nbroker: %s\n"+
		"identity: {key_file: %s, coordinator_key: %q}\n%s\n",
		f.Name, id, f.StateDir(id), broker, f.KeyFile(id), f.CoordinatorKey, more)
}

// CoordinatorYAML returns the configuration of a coordinator. broker and more are in YAML.
func (f *Folder) CoordinatorYAML(name, broker, more string) string {
	return fmt.Sprintf("federation: %s\nstate_dir: %s\nbroker: %s\nidentity: {key_file: %s, agents_file: %s}\n%s\n",
		f.Name, f.StateDir(name), broker, f.KeyFile(Coordinator), f.AgentsFile(name), more)
}
