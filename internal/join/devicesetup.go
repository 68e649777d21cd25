package join

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fedmesh/fedmesh/internal/config"
	"github.com/fedmesh/fedmesh/internal/keys"
	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// Names of the device's files, which are in the folder of the configuration file.
const (
	agentKeyFile   = "agent.key"
	clientKeyFile  = "client.key"
	clientCertFile = "client.crt"
	caCertFile     = "ca.crt"
	rootFile       = "root"

	usedTokenFile = "joined" // public key of the last used token
	// pendingFolder is the folder for files that are not installed yet: the device's keys, the coordinator's answer,
	// and a file that identifies the token.
	pendingFolder = "joining"
	answerFile    = "answer"
	tokenFile     = "token"
)

// packagedConfigDir is the configuration folder of an agentd that was installed from a package.
const packagedConfigDir = "/etc/agentd"

// DeviceSetup describes a device that joins a federation.
type DeviceSetup struct {
	ConfigPath    string            // path of agentd.yaml
	OwnerSettings map[string]string // keys set by the device's owner, with values in command-line syntax
	Token         wire.EnrolmentToken
	Agent         wire.AgentID // id of the device; required if the token is for any device
	Disk          store.Disk
	// RequestAdmission sends an enrolment request to the coordinator's address, usually with the function
	// [RequestAdmission].
	RequestAdmission func(ctx context.Context, token *wire.EnrolmentToken, agent wire.AgentID,
		k *DeviceKeys) (*VerifiedAdmission,
		error)

	// SkippedSettings lists settings sent by the coordinator that were not applied, because this build does not know
	// the settings or because only the device's owner may change them.
	SkippedSettings []string
}

func (s *DeviceSetup) pathBesideConfig(names ...string) string {
	return filepath.Join(append([]string{filepath.Dir(s.ConfigPath)}, names...)...)
}

// tokenMarker returns the content of a file that identifies the used token without revealing it. If the token is valid
// for any device, the content also includes the device id.
func (s *DeviceSetup) tokenMarker() []byte {
	text := hex.EncodeToString(keys.Public(s.Token.SigningKey()))
	if s.Token.Agent == "" {
		text += " " + string(s.Agent)
	}
	return []byte(text + "\n")
}

// Join enrols the device. The result before reports whether the device had already joined with this token earlier.
func (s *DeviceSetup) Join(ctx context.Context) (before bool, err error) {
	if s.Token.Agent != "" && s.Agent != "" && s.Agent != s.Token.Agent {
		return false, fmt.Errorf("the token is for the device %s, not for %s", s.Token.Agent, s.Agent)
	}
	if s.Agent == "" {
		s.Agent = s.Token.Agent
	}
	if s.Agent == "" {
		return false, errors.New("the token is valid for any device: set the id of this device with --id")
	}
	if err := s.Agent.ValidateNonCoordinator(); err != nil {
		return false, err
	}
	if is, err := s.Disk.ReadFile(s.pathBesideConfig(usedTokenFile)); err == nil {
		if bytes.Equal(is, s.tokenMarker()) {
			return true, s.removePendingFiles()
		}
		was, device, _ := strings.Cut(strings.TrimSpace(string(is)), " ")
		if now, _, _ := strings.Cut(string(s.tokenMarker()), " "); was == now && device != "" {
			return false, fmt.Errorf("the folder %s belongs to the device %s, which joined with this token: choose "+
				"another folder with --config or, if this device has a new name, move %s away and revoke %[2]s on "+
				"the coordinator", filepath.Dir(s.ConfigPath), device, s.pathBesideConfig(usedTokenFile))
		}
	}
	if err := s.Disk.MakeDir(filepath.Dir(s.ConfigPath)); err != nil {
		return false, err
	}
	k, err := s.loadOrMakeKeys()
	if err != nil {
		return false, err
	}
	a, err := s.loadOrRequestAdmission(ctx, k)
	if err != nil {
		return false, err
	}
	return false, s.installFiles(k, a)
}

// loadOrMakeKeys returns the keys of an earlier attempt with this token, or generates new keys.
func (s *DeviceSetup) loadOrMakeKeys() (*DeviceKeys, error) {
	is, err := s.Disk.ReadFile(s.pathBesideConfig(pendingFolder, tokenFile))
	switch {
	case err == nil && bytes.Equal(is, s.tokenMarker()):
		return s.readPendingKeys()
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, err // do not generate new keys, because the token may already have been used with these keys
	}
	if err := s.checkKeyReplaceable(); err != nil {
		return nil, err
	}
	if err := s.removePendingFiles(); err != nil {
		return nil, err
	}
	k, err := NewDeviceKeys()
	if err != nil {
		return nil, err
	}
	if err := s.Disk.Mkdir(s.pathBesideConfig(pendingFolder), 0o700); err != nil {
		return nil, err
	}
	own, err1 := keys.EncodePrivate(k.SigningKey)
	client, err2 := keys.EncodePrivate(k.TLSKey)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	if err := s.writeFileBesideConfig(0o600, own, pendingFolder, agentKeyFile); err != nil {
		return nil, err
	}
	if err := s.writeFileBesideConfig(0o600, client, pendingFolder, clientKeyFile); err != nil {
		return nil, err
	}
	// Write the token marker last, because a later attempt uses the keys only if the marker exists.
	if err := s.writeFileBesideConfig(0o600, s.tokenMarker(), pendingFolder, tokenFile); err != nil {
		return nil, err
	}
	return &k, s.Disk.SyncDir(filepath.Dir(s.ConfigPath))
}

func (s *DeviceSetup) writeFileBesideConfig(perm fs.FileMode, content []byte, names ...string) error {
	return s.Disk.WriteFileDurably(s.pathBesideConfig(names...), content, perm)
}

func (s *DeviceSetup) readPendingKeys() (*DeviceKeys, error) {
	own, err := keys.ReadSigningKey(s.pathBesideConfig(pendingFolder, agentKeyFile))
	if err != nil {
		return nil, err
	}
	client, err := keys.ReadClientKey(s.pathBesideConfig(pendingFolder, clientKeyFile))
	return &DeviceKeys{own, client}, err
}

// checkKeyReplaceable returns an error if the existing key of the device must be kept. This is the case if the key was
// created by hand, or if it belongs to another federation.
func (s *DeviceSetup) checkKeyReplaceable() error {
	if _, err := s.Disk.Lstat(s.pathBesideConfig(agentKeyFile)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	p, err := s.Disk.ReadFile(s.pathBesideConfig(rootFile))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s already exists and was created by hand: the file may be the identity of this device. "+
			"Move the file away to join with a new key, or choose another folder with --config",
			s.pathBesideConfig(agentKeyFile))
	}
	if err != nil {
		return err
	}
	d, err := wire.DecodeAndVerifyRootDocument(p)
	if err != nil {
		return fmt.Errorf("%s: %w", s.pathBesideConfig(rootFile), err)
	}
	if d.RootPin() != s.Token.Pin {
		return fmt.Errorf("this device has a root document of the federation %s with a different root key than the "+
			"token. If that federation has changed its root keys, or if this device should leave it permanently, "+
			"move %s and %s away. To join both federations, choose another folder with --config", d.Federation,
			s.pathBesideConfig(agentKeyFile), s.pathBesideConfig(rootFile))
	}
	return nil
}

// loadOrRequestAdmission returns the stored answer of the coordinator, or requests a new answer.
func (s *DeviceSetup) loadOrRequestAdmission(ctx context.Context, k *DeviceKeys) (*VerifiedAdmission, error) {
	if p, err := s.Disk.ReadFile(s.pathBesideConfig(pendingFolder, answerFile)); err == nil {
		if a,
			err := wire.DecodeEnrolmentAnswer(p); err == nil && a.RefusalReason == 0 &&
			s.checkNextRoot(a.RootDocument) == nil {
			return CheckAdmission(&a, s.Token.Pin, k)
		}
	}
	a, err := s.RequestAdmission(ctx, &s.Token, s.Agent, k)
	if err != nil {
		return nil, err
	}
	if err := s.checkNextRoot(a.RootDocument); err != nil {
		return nil, err
	}
	return a, s.writeFileBesideConfig(0o600, a.EncodedAnswer, pendingFolder, answerFile)
}

// checkNextRoot returns an error if the root document fresh must not replace the device's present root document (list
// of trusted keys).
func (s *DeviceSetup) checkNextRoot(fresh []byte) error {
	held, err := s.Disk.ReadFile(s.pathBesideConfig(rootFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	is, err := wire.DecodeAndVerifyRootDocument(held)
	if err != nil {
		return fmt.Errorf("%s: %w", s.pathBesideConfig(rootFile), err)
	}
	next, err := wire.DecodeAndVerifyRootDocument(fresh)
	if err != nil {
		return err
	}
	switch {
	// The root key differs. checkKeyReplaceable has already accepted this.
	case is.RootKey != next.RootKey && is.RootPin() != next.RootPin():
		return nil
	case next.Version < is.Version:
		return fmt.Errorf("the coordinator has version %d of the root document, but %s already has version %d: "+
			"install the newest version on the coordinator, and restart it", next.Version, s.pathBesideConfig(rootFile),
			is.Version)
	case next.Version == is.Version && !bytes.Equal(fresh, held):
		return fmt.Errorf("the coordinator's version %d of the root document differs from %s: create a document with "+
			"the next version number, and install it everywhere", next.Version, s.pathBesideConfig(rootFile))
	}
	return nil
}

// installFiles installs all files of the device. The configuration and the token marker are written last, in this
// order, because the marker records that the device has joined.
func (s *DeviceSetup) installFiles(k *DeviceKeys, a *VerifiedAdmission) error {
	text, err := s.updatedConfig(a)
	if err != nil {
		return err
	}
	files, err := DeviceFiles(k, a)
	if err != nil {
		return err
	}
	owner := ownerOf(s.ConfigPath)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		perm := fs.FileMode(0o644)
		if strings.HasSuffix(name, ".key") {
			perm = owner.privateKeyMode()
		}
		if err := owner.write(s.Disk, s.pathBesideConfig(name), files[name], perm); err != nil {
			return err
		}
	}
	if err := owner.write(s.Disk, s.ConfigPath, text, owner.mode); err != nil {
		return err
	}
	if err := s.writeFileBesideConfig(0o644, s.tokenMarker(), usedTokenFile); err != nil {
		return err
	}
	return s.removePendingFiles()
}

// removePendingFiles removes the folder of pending files. It removes the token marker first, because the other files
// are ignored without the marker. The folder may also contain files with other names, which an interrupted write has
// left.
func (s *DeviceSetup) removePendingFiles() error {
	entries, err := s.Disk.ReadDir(s.pathBesideConfig(pendingFolder))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	names := []string{tokenFile}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	for _, name := range append(names, "") {
		if err := s.Disk.Remove(s.pathBesideConfig(pendingFolder, name)); err != nil && !errors.Is(err,
			fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// DeviceFiles returns the files of an admitted device except the configuration, as a map from name to content.
func DeviceFiles(k *DeviceKeys, a *VerifiedAdmission) (map[string][]byte, error) {
	own, err1 := keys.EncodePrivate(k.SigningKey)
	client, err2 := keys.EncodePrivate(k.TLSKey)
	pemOf := func(der []byte) []byte {
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	}
	return map[string][]byte{agentKeyFile: own, clientKeyFile: client, clientCertFile: pemOf(a.Certificate),
		caCertFile: pemOf(a.CACertificate),
		rootFile:   a.RootDocument}, errors.Join(err1, err2)
}

// configHeader is the first comment of a configuration file that Join creates.
const configHeader = "# agentd configuration, written by `agentd join`. The sample in the documentation contains all " +
	"keys.\n"

// updatedConfig returns agentd.yaml with the settings of the admitted device.
func (s *DeviceSetup) updatedConfig(a *VerifiedAdmission) ([]byte, error) {
	path, err := filepath.Abs(s.ConfigPath)
	if err != nil {
		return nil, err
	}
	values := map[string]string{}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		text, err = []byte(configHeader), nil
		if filepath.Dir(path) != packagedConfigDir { // outside this folder, several devices may share a machine
			values["state_dir"], values["metrics.listen"] = filepath.Join(filepath.Dir(path), "state"), ""
		}
	}
	if err != nil {
		return nil, err
	}
	if several, err := settings.ReadUnvalidatedAgent(path); err == nil && len(several.Federations) > 0 {
		return nil, fmt.Errorf("%s contains several federations: join in another folder with --config, and copy the "+
			"federation, broker and identity from there into an entry of federations", path)
	}
	maps.Copy(values, AgentConfigValues(filepath.Dir(path), s.Agent, a, &s.SkippedSettings))
	maps.Copy(values, s.OwnerSettings)
	return config.EditConfigText(path, text, values, settings.UnvalidatedAgentDefaults)
}

// AgentConfigValues returns the values of agentd.yaml for an admitted device with files in dir, by key. Settings that
// the coordinator may not change are appended to passed instead.
func AgentConfigValues(dir string, agent wire.AgentID, a *VerifiedAdmission, passed *[]string) map[string]string {
	values := map[string]string{}
	for _, x := range a.Settings {
		if settings.IsSharedSetting(x.Name) {
			values[x.Name] = x.Value
		} else {
			*passed = append(*passed, x.Name)
		}
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	maps.Copy(values, map[string]string{
		"federation": string(a.Document.Federation), "id": string(agent),
		"broker.ca_file": at(caCertFile), "broker.cert_file": at(clientCertFile), "broker.key_file": at(clientKeyFile),
		"identity.key_file": at(agentKeyFile), "identity.root_file": at(rootFile), "identity.coordinator_key": "",
	})
	return values
}
