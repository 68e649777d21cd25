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

// The files of a device, beside its configuration.
const (
	agentKey  = "agent.key"
	clientKey = "client.key"
	clientCrt = "client.crt"
	caCrt     = "ca.crt"
	rootFile  = "root"

	usedTokenFile = "joined"  // the token that was used last: the public part of its key
	pendingFolder = "joining" // of what is not in its place yet: keys, then the answer, and the token that they are for
	answerFile    = "answer"
	tokenFile     = "token"
)

// packagedConfigDir is the folder in which a package's agentd looks for its files.
const packagedConfigDir = "/etc/agentd"

// Setup is a device that joins.
type Setup struct {
	Config        string            // path of agentd.yaml
	OwnerSettings map[string]string // keys that the device's owner sets, as on a command line
	Token         wire.EnrolmentToken
	Agent         wire.AgentID // for a token of any device; else that of the token
	Disk          store.Disk
	// RequestAdmission is the function Exchange, for the coordinator's address.
	RequestAdmission func(ctx context.Context, token *wire.EnrolmentToken, agent wire.AgentID,
		k *Keys) (*VerifiedAdmission,
		error)

	// SkippedSettings are settings of the coordinator's that this build leaves to the device's owner, or does not know.
	SkippedSettings []string
}

func (s *Setup) path(names ...string) string {
	return filepath.Join(append([]string{filepath.Dir(s.Config)}, names...)...)
}

// tokenMarker returns the content of a file that names the token, and the device if the token is for any device.
// Whoever reads it cannot use the token.
func (s *Setup) tokenMarker() []byte {
	text := hex.EncodeToString(keys.Public(s.Token.Key()))
	if s.Token.Agent == "" {
		text += " " + string(s.Agent)
	}
	return []byte(text + "\n")
}

// Run joins. It reports whether the device had joined with this token before.
func (s *Setup) Run(ctx context.Context) (before bool, err error) {
	if s.Token.Agent != "" && s.Agent != "" && s.Agent != s.Token.Agent {
		return false, fmt.Errorf("the token is of the device %s, not of %s", s.Token.Agent, s.Agent)
	}
	if s.Agent == "" {
		s.Agent = s.Token.Agent
	}
	if s.Agent == "" {
		return false, errors.New("the token is for any device: say which one this is with --id")
	}
	if err := s.Agent.ValidateAgent(); err != nil {
		return false, err
	}
	if is, err := s.Disk.ReadFile(s.path(usedTokenFile)); err == nil {
		if bytes.Equal(is, s.tokenMarker()) {
			return true, s.removePendingFiles()
		}
		was, device, _ := strings.Cut(strings.TrimSpace(string(is)), " ")
		if now, _, _ := strings.Cut(string(s.tokenMarker()), " "); was == now && device != "" {
			return false, fmt.Errorf("the folder %s belongs to the device %s, which joined with this token: choose "+
				"another folder with --config, or, if this device has a new name, move %s away and revoke %[2]s at "+
				"the coordinator", filepath.Dir(s.Config), device, s.path(usedTokenFile))
		}
	}
	if err := s.Disk.MakeDir(filepath.Dir(s.Config)); err != nil {
		return false, err
	}
	k, err := s.keys()
	if err != nil {
		return false, err
	}
	a, err := s.loadOrRequestAdmission(ctx, k)
	if err != nil {
		return false, err
	}
	return false, s.install(k, a)
}

// keys returns those that this token was asked with, or makes them.
func (s *Setup) keys() (*Keys, error) {
	is, err := s.Disk.ReadFile(s.path(pendingFolder, tokenFile))
	switch {
	case err == nil && bytes.Equal(is, s.tokenMarker()):
		return s.readPendingKeys()
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, err // the keys may have used the token already
	}
	if err := s.checkReplaceableKey(); err != nil {
		return nil, err
	}
	if err := s.removePendingFiles(); err != nil {
		return nil, err
	}
	k, err := NewKeys()
	if err != nil {
		return nil, err
	}
	if err := s.Disk.Mkdir(s.path(pendingFolder), 0o700); err != nil {
		return nil, err
	}
	own, err1 := keys.Encode(k.Device)
	client, err2 := keys.Encode(k.TLS)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	if err := s.write(0o600, own, pendingFolder, agentKey); err != nil {
		return nil, err
	}
	if err := s.write(0o600, client, pendingFolder, clientKey); err != nil {
		return nil, err
	}
	if err := s.write(0o600, s.tokenMarker(), pendingFolder, tokenFile); err != nil { // last: with it the keys count
		return nil, err
	}
	return &k, s.Disk.SyncDir(filepath.Dir(s.Config))
}

func (s *Setup) write(perm fs.FileMode, content []byte, names ...string) error {
	return s.Disk.WriteFile(s.path(names...), content, perm)
}

func (s *Setup) readPendingKeys() (*Keys, error) {
	own, err := keys.ReadPrivate(s.path(pendingFolder, agentKey))
	if err != nil {
		return nil, err
	}
	client, err := keys.ReadClientKey(s.path(pendingFolder, clientKey))
	return &Keys{own, client}, err
}

// checkReplaceableKey reports why the device's key must stay: it was made by hand, or for another federation.
func (s *Setup) checkReplaceableKey() error {
	if _, err := s.Disk.Lstat(s.path(agentKey)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	p, err := s.Disk.ReadFile(s.path(rootFile))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is there already, and was made by hand: it may be the identity of this device. Move it "+
			"away to join with a key of its own, or choose another folder with --config", s.path(agentKey))
	}
	if err != nil {
		return err
	}
	d, err := wire.DecodeVerifiedRoot(p)
	if err != nil {
		return fmt.Errorf("%s: %w", s.path(rootFile), err)
	}
	if d.Pin() != s.Token.Pin {
		return fmt.Errorf("this device has a root document of the federation %s, of another root than the token: if "+
			"that federation has changed its root keys, or to leave it for good, move %s and %s away; to be in both, "+
			"choose another folder with --config", d.Federation, s.path(agentKey),
			s.path(rootFile))
	}
	return nil
}

// loadOrRequestAdmission returns the coordinator's answer: the one that is kept, or a fresh one.
func (s *Setup) loadOrRequestAdmission(ctx context.Context, k *Keys) (*VerifiedAdmission, error) {
	if p, err := s.Disk.ReadFile(s.path(pendingFolder, answerFile)); err == nil {
		if a, err := wire.DecodeEnrolmentAnswer(p); err == nil && a.Refusal == 0 && s.checkNextRoot(a.Root) == nil {
			return CheckAdmission(&a, s.Token.Pin, k)
		}
	}
	a, err := s.RequestAdmission(ctx, &s.Token, s.Agent, k)
	if err != nil {
		return nil, err
	}
	if err := s.checkNextRoot(a.Root); err != nil {
		return nil, err
	}
	return a, s.write(0o600, a.Bytes, pendingFolder, answerFile)
}

// checkNextRoot reports why a root document may not come into the place of the device's own.
func (s *Setup) checkNextRoot(fresh []byte) error {
	held, err := s.Disk.ReadFile(s.path(rootFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	is, err := wire.DecodeVerifiedRoot(held)
	if err != nil {
		return fmt.Errorf("%s: %w", s.path(rootFile), err)
	}
	next, err := wire.DecodeVerifiedRoot(fresh)
	if err != nil {
		return err
	}
	switch {
	case is.RootKey != next.RootKey && is.Pin() != next.Pin(): // another root: checkReplaceableKey has looked at it
		return nil
	case next.Version < is.Version:
		return fmt.Errorf("the coordinator has version %d of the root document, and %s is version %d already: give "+
			"the coordinator the newest one, and start it again", next.Version, s.path(rootFile), is.Version)
	case next.Version == is.Version && !bytes.Equal(fresh, held):
		return fmt.Errorf("the coordinator has another version %d of the root document than %s: give all the same "+
			"one, with the next number", next.Version, s.path(rootFile))
	}
	return nil
}

// install puts all files into their place; the configuration comes last but for the note that this is done.
func (s *Setup) install(k *Keys, a *VerifiedAdmission) error {
	text, err := s.configuration(a)
	if err != nil {
		return err
	}
	files, err := Files(k, a)
	if err != nil {
		return err
	}
	owner := ownerOf(s.Config)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		perm := fs.FileMode(0o644)
		if strings.HasSuffix(name, ".key") {
			perm = owner.privateKeyMode()
		}
		if err := owner.write(s.Disk, s.path(name), files[name], perm); err != nil {
			return err
		}
	}
	if err := owner.write(s.Disk, s.Config, text, owner.mode); err != nil {
		return err
	}
	if err := s.write(0o644, s.tokenMarker(), usedTokenFile); err != nil {
		return err
	}
	return s.removePendingFiles()
}

// removePendingFiles removes the folder, the token first: without it the rest counts for nothing. A write that was cut
// short leaves files of other names there.
func (s *Setup) removePendingFiles() error {
	entries, err := s.Disk.ReadDir(s.path(pendingFolder))
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
		if err := s.Disk.Remove(s.path(pendingFolder, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Files are those of a device that was taken in, besides its configuration, by name.
func Files(k *Keys, a *VerifiedAdmission) (map[string][]byte, error) {
	own, err1 := keys.Encode(k.Device)
	client, err2 := keys.Encode(k.TLS)
	pemOf := func(der []byte) []byte {
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	}
	return map[string][]byte{agentKey: own, clientKey: client, clientCrt: pemOf(a.Certificate), caCrt: pemOf(a.CA),
		rootFile: a.Root}, errors.Join(err1, err2)
}

// configHeader begins a configuration that was not there.
const configHeader = "# agentd, as `agentd join` has written it; the sample in the documentation has all keys.\n"

// configuration returns agentd.yaml with what the device is now.
func (s *Setup) configuration(a *VerifiedAdmission) ([]byte, error) {
	path, err := filepath.Abs(s.Config)
	if err != nil {
		return nil, err
	}
	values := map[string]string{}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		text, err = []byte(configHeader), nil
		if filepath.Dir(path) != packagedConfigDir { // several devices may run on a machine
			values["state_dir"], values["metrics.listen"] = filepath.Join(filepath.Dir(path), "state"), ""
		}
	}
	if err != nil {
		return nil, err
	}
	if several, err := settings.ReadUnchecked(path); err == nil && len(several.Federations) > 0 {
		return nil, fmt.Errorf("%s has several federations: join with --config in another folder, and write its "+
			"federation, broker and identity into an entry of federations", path)
	}
	maps.Copy(values, ConfigValues(filepath.Dir(path), s.Agent, a, &s.SkippedSettings))
	maps.Copy(values, s.OwnerSettings)
	return config.EditFile(path, text, values, settings.UncheckedAgent)
}

// ConfigValues are the keys of agentd.yaml of a device whose files are in a folder. Settings that are not the
// coordinator's to give are passed over.
func ConfigValues(dir string, agent wire.AgentID, a *VerifiedAdmission, passed *[]string) map[string]string {
	values := map[string]string{}
	for _, x := range a.Settings {
		if settings.IsShared(x.Name) {
			values[x.Name] = x.Value
		} else {
			*passed = append(*passed, x.Name)
		}
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	maps.Copy(values, map[string]string{
		"federation": string(a.Document.Federation), "id": string(agent),
		"broker.ca_file": at(caCrt), "broker.cert_file": at(clientCrt), "broker.key_file": at(clientKey),
		"identity.key_file": at(agentKey), "identity.root_file": at(rootFile), "identity.coordinator_key": "",
	})
	return values
}
