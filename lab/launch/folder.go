package launch

import (
	"bytes"
	"crypto/subtle"
	"fmt"
	"os"
	"path/filepath"

	"github.com/fedmesh/fedmesh/internal/keys"
)

// Coordinator is the default file name prefix of the coordinator's files. A federation with several coordinators uses
// one name per coordinator.
const Coordinator = "coordinator"

// Folder is the directory of a federation:
//
//	coordinator.key, coordinator.yaml, agents.keys, state/
//	NAME.yaml, NAME.keys, state-NAME/    for each of several coordinators
//	ID.key, ID.yaml, state-ID/           for each agent
//	passwords/USER                       for each user of the broker
type Folder struct {
	Dir            string
	Name           string // name of the federation
	CoordinatorKey string // public key of the coordinator, base64-encoded
}

// NewFolder creates the coordinator's key in the existing directory dir and returns the folder.
func NewFolder(dir, name string) (*Folder, error) {
	f := &Folder{Dir: dir, Name: name}
	key, err := keys.CreateSigningKeyFile(f.KeyFile(Coordinator))
	if err != nil {
		return nil, err
	}
	f.CoordinatorKey = keys.FormatPublic(keys.Public(key))
	return f, nil
}

// Path returns the path of the file called name in the folder.
func (f *Folder) Path(name string) string { return filepath.Join(f.Dir, name) }

// KeyFile returns the path of the private key file of an agent or coordinator.
func (f *Folder) KeyFile(id string) string { return f.Path(id + ".key") }

// StateDir returns the state directory of an agent or coordinator.
func (f *Folder) StateDir(id string) string {
	if id == Coordinator {
		return f.Path("state")
	}
	return f.Path("state-" + id)
}

// AgentsFile returns the path of the list of agents of a coordinator. With several coordinators, each coordinator has
// its own copy of the list.
func (f *Folder) AgentsFile(coordinator string) string {
	if coordinator == Coordinator {
		return f.Path("agents.keys")
	}
	return f.Path(coordinator + ".keys")
}

// Put writes a file in the folder and creates missing parent directories.
func (f *Folder) Put(name string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(f.Path(name)), 0o700); err != nil {
		return err
	}
	return os.WriteFile(f.Path(name), content, 0o600)
}

// NewAgent creates an agent's key and returns the agent's line for the coordinator's list of agents.
func (f *Folder) NewAgent(id string) (line string, err error) {
	key, err := keys.CreateSigningKeyFile(f.KeyFile(id))
	if err != nil {
		return "", err
	}
	return id + " " + keys.FormatPublic(keys.Public(key)) + "\n", nil
}

// PasswordFile returns the path of the password file of a broker user.
func (f *Folder) PasswordFile(user string) string { return f.Path(filepath.Join("passwords", user)) }

// PutPassword writes the password file of a broker user.
func (f *Folder) PutPassword(user, password string) error {
	return f.Put(filepath.Join("passwords", user), []byte(password+"\n"))
}

// Authenticate reports whether password is the password in the user's password file. The embedded broker accepts this
// method as its option Authenticate.
func (f *Folder) Authenticate(_, user, password string) bool {
	if filepath.Base(user) != user {
		return false
	}
	want, err := os.ReadFile(f.PasswordFile(user))
	return err == nil && subtle.ConstantTimeCompare(bytes.TrimSpace(want), []byte(password)) == 1
}

// ConfigFile returns the path of the configuration file of an agent or coordinator.
func (f *Folder) ConfigFile(id string) string { return f.Path(id + ".yaml") }

// AgentYAML returns the configuration of an agent as YAML. broker is the value of the broker section, and more contains
// further sections.
func (f *Folder) AgentYAML(id, broker, more string) string {
	return fmt.Sprintf("federation: %s\nid: %s\nstate_dir: %s\nbroker: %s\n"+
		"identity: {key_file: %s, coordinator_key: %q}\n%s\n",
		f.Name, id, f.StateDir(id), broker, f.KeyFile(id), f.CoordinatorKey, more)
}

// CoordinatorYAML returns the configuration of a coordinator as YAML. broker is the value of the broker section, and
// more contains further sections.
func (f *Folder) CoordinatorYAML(name, broker, more string) string {
	return fmt.Sprintf("federation: %s\nstate_dir: %s\nbroker: %s\nidentity: {key_file: %s, agents_file: %s}\n%s\n",
		f.Name, f.StateDir(name), broker, f.KeyFile(Coordinator), f.AgentsFile(name), more)
}
