package join

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fedmesh/fedmesh/coordinator/enrol"
	"github.com/fedmesh/fedmesh/internal/keys"
	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// members is a list of agents in memory, with the public key of each agent.
type members map[wire.AgentID]wire.SigningPublicKey

func (m members) Check(id wire.AgentID, key wire.SigningPublicKey, replaces wire.AgentID) error {
	if k, is := m[id]; is && k != key && id != replaces {
		return enrol.ErrListed
	}
	return nil
}

func (m members) Has(id wire.AgentID, key wire.SigningPublicKey) (bool, error) {
	k, is := m[id]
	return is && k == key, nil
}

func (m members) Admit(_ context.Context, id wire.AgentID, key wire.SigningPublicKey, replaces wire.AgentID) error {
	delete(m, replaces)
	m[id] = key
	return nil
}

// told is an observer that counts the events of a registrar.
type told int

func (t *told) Observe(observe.Event) { *t++ }

// office is the registrar of a coordinator (the part that admits devices), with its HTTPS server.
type office struct {
	*enrol.Registrar
	url     string
	members members
	told    *told
}

// open starts the registrar of a federation. All keys of the federation are derived from the number n.
func open(t *testing.T, n byte, shared ...wire.AgentSetting) *office {
	t.Helper()
	key := func(k byte) ed25519.PrivateKey { return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{n, k}, 16)) }
	made, err := NewDeviceKeys()
	if err != nil {
		t.Fatal(err)
	}
	authority, err := enrol.NewCertificateAuthority("plant_7", made.TLSKey, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	root := wire.RootDocument{Federation: "plant_7", Version: wire.FirstRootVersion,
		CoordinatorKey:    wire.SigningPublicKeyOf(key(1)),
		CACertificateHash: authority.CertificateDigest()}
	root.Sign(key(2), nil)
	o := &office{members: members{}, told: new(told)}
	if shared == nil {
		shared = []wire.AgentSetting{{Name: "broker.url", Value: "tls://gw.example:8883"}}
	}
	o.Registrar, err = enrol.Open(enrol.Config{EncodedRootDocument: root.Bytes(), CoordinatorKey: key(1),
		CertificateAuthority: authority,
		SharedDeviceSettings: shared,
		MakeBrokerUserName:   func(id wire.AgentID) string { return "plant_7-" + string(id) }, List: o.members,
		Observer: o.told,
		Disk:     store.LocalDisk, StateDir: t.TempDir(), Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	at, err := o.ListenForJoins(t.Context(), "127.0.0.1:0", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	o.url = "https://" + at.String()
	return o
}

func (o *office) token(t *testing.T, agent, replaces wire.AgentID) wire.EnrolmentToken {
	t.Helper()
	token, err := o.IssueToken(agent, replaces, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// setup returns a device that joins this federation.
func (o *office) setup(dir string, token wire.EnrolmentToken) *DeviceSetup {
	return &DeviceSetup{ConfigPath: filepath.Join(dir, "agentd.yaml"), Token: token, Disk: store.LocalDisk,
		RequestAdmission: func(ctx context.Context, t *wire.EnrolmentToken, id wire.AgentID,
			k *DeviceKeys) (*VerifiedAdmission,
			error) {
			return RequestAdmission(ctx, o.url, t, id, k)
		}}
}

// joined checks that the files of a device match each other, and that the coordinator lists the device's key.
func (o *office) joined(t *testing.T, what, dir string, id wire.AgentID) {
	t.Helper()
	a := settings.DefaultAgent()
	data := map[string]string{"data.csv": filepath.Join(dir, "rows.csv")}
	if err := settings.Load(&a, "agentd", filepath.Join(dir, "agentd.yaml"), data); err != nil {
		t.Errorf("%s: %v", what, err)
		return
	}
	key, err := keys.ReadSigningKey(a.Identity.KeyFile)
	if err != nil {
		t.Errorf("%s: %v", what, err)
		return
	}
	if o.members[id] != wire.SigningPublicKeyOf(key) || a.ID != string(id) || a.Federation != "plant_7" ||
		a.Broker.URLs[0] != "tls://gw.example:8883" {
		t.Errorf("%s: %s of %s at %s has the key %s; listed are %v", what, a.ID, a.Federation, a.Broker.URLs,
			keys.FormatPublic(keys.Public(key)), o.members)
	}
	if _, err := os.Lstat(filepath.Join(dir, pendingFolder)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s: the folder %s is left: %v", what, pendingFolder, err)
	}
}

// TestRun checks that a device can join, and that it can join again with a token for key rotation. If the same command
// is repeated, it must change nothing.
func TestRun(t *testing.T) {
	o, dir := open(t, 1), t.TempDir()
	token := o.token(t, "press-01", "")
	for i, want := range []bool{false, true} {
		before, err := o.setup(dir, token).Join(t.Context())
		if err != nil || before != want {
			t.Fatalf("time %d: before is %v, %v", i, before, err)
		}
		o.joined(t, "first", dir, "press-01")
	}
	was := o.members["press-01"]
	if _, err := o.setup(dir, o.token(t, "press-01", "press-01")).Join(t.Context()); err != nil {
		t.Fatal(err)
	}
	o.joined(t, "rotated", dir, "press-01")
	if o.members["press-01"] == was {
		t.Error("the key is the same after a rotation")
	}
	if _, err := o.setup(dir, o.token(t, "press-1", "press-01")).Join(t.Context()); err != nil {
		t.Fatal(err)
	}
	o.joined(t, "renamed", dir, "press-1")
	for _, name := range []string{agentKeyFile, clientKeyFile} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
}

// TestRunRefused checks that each error contains a remedy, and that the device's files are unchanged.
func TestRunRefused(t *testing.T) {
	o, other := open(t, 1), open(t, 2)
	token := o.token(t, "press-01", "")
	for name, tt := range map[string]struct {
		prepare func(dir string, s *DeviceSetup)
		want    string
	}{
		"another federation's coordinator": {func(_ string, s *DeviceSetup) {
			s.RequestAdmission = other.setup("", token).RequestAdmission
		}, "not the coordinator that created the token"},
		"a key by hand": {func(dir string, _ *DeviceSetup) {
			if _, err := keys.CreateSigningKeyFile(filepath.Join(dir, agentKeyFile)); err != nil {
				t.Fatal(err)
			}
		}, "created by hand"},
		"a device of another federation": {func(dir string, _ *DeviceSetup) {
			if _, err := other.setup(dir, other.token(t, "press-01", "")).Join(t.Context()); err != nil {
				t.Fatal(err)
			}
		}, "with a different root key than the token"},
		"an open token": {func(_ string, s *DeviceSetup) { s.Token = o.token(t, "", "") }, "--id"},
		"an open token, used for another device": {func(dir string, s *DeviceSetup) {
			first := o.setup(dir, o.token(t, "", ""))
			first.Agent = "prees-06"
			if _, err := first.Join(t.Context()); err != nil {
				t.Fatal(err)
			}
			s.Token, s.Agent = first.Token, "press-06"
		}, "belongs to the device prees-06"},
		"another name": {func(_ string, s *DeviceSetup) { s.Agent = "press-02" },
			"the token is for the device press-01"},
		"a configuration that cannot be read": {func(dir string, s *DeviceSetup) {
			if err := os.WriteFile(s.ConfigPath, []byte("federation: [\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "agentd.yaml"},
	} {
		dir := t.TempDir()
		s := o.setup(dir, token)
		tt.prepare(dir, s)
		before := contents(t, dir)
		s.Token.Pin = token.Pin
		_, err := s.Join(t.Context())
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v; want %q", name, err, tt.want)
		}
		for path, content := range before {
			if now, err := os.ReadFile(path); err != nil || string(now) != content {
				t.Errorf("%s: %s was changed", name, path)
			}
		}
		o.members = members{}
		if *other.told > 1 {
			t.Errorf("%s: the wrong coordinator was asked", name)
		}
	}
}

func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	names, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		path := filepath.Join(dir, n.Name())
		if text, err := os.ReadFile(path); err == nil {
			all[path] = string(text)
		}
	}
	return all
}

// TestOldRoot checks that a device keeps its root document (list of trusted keys) in two cases: if the coordinator has
// an older document, and if the coordinator has a different document with the same version. When the coordinator has
// the right document, the same command must succeed.
func TestOldRoot(t *testing.T) {
	for name, tt := range map[string]struct {
		version wire.RootVersion
		want    string
	}{
		"older":   {wire.FirstRootVersion + 1, "already has version 2"},
		"another": {wire.FirstRootVersion, "version 1 of the root document differs"},
	} {
		o, dir := open(t, 1), t.TempDir()
		if _, err := o.setup(dir, o.token(t, "press-01", "")).Join(t.Context()); err != nil {
			t.Fatal(err)
		}
		right, err := os.ReadFile(filepath.Join(dir, rootFile))
		if err != nil {
			t.Fatal(err)
		}
		held := o.RootDocument()
		held.Version, held.RevokedAgents = tt.version, []wire.AgentID{"stolen"}
		held.Sign(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1, 2}, 16)), nil)
		if err := os.WriteFile(filepath.Join(dir, rootFile), held.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		before, s := contents(t, dir), o.setup(dir, o.token(t, "press-01", "press-01"))
		if _, err := s.Join(t.Context()); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v; want %q", name, err, tt.want)
		}
		for path, content := range before {
			if now, err := os.ReadFile(path); err != nil || string(now) != content {
				t.Errorf("%s: %s was changed", name, path)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, rootFile), right, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Join(t.Context()); err != nil {
			t.Errorf("%s: with the right one: %v", name, err)
		}
		o.joined(t, name, dir, "press-01")
	}
}

// TestOlderRootOfAnotherKey checks that an older root document (list of trusted keys) is also refused if it was signed
// by another of the root keys.
func TestOlderRootOfAnotherKey(t *testing.T) {
	key := func(k byte) ed25519.PrivateKey { return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1, k}, 16)) }
	document := func(version wire.RootVersion, signs, other byte) []byte {
		d := wire.RootDocument{Federation: "plant_7", Version: version, CoordinatorKey: wire.SigningPublicKeyOf(key(1)),
			CACertificateHash: wire.Digest{1}, RootQuorum: wire.RootQuorum{Threshold: 1,
				ExtraKeys: []wire.SigningPublicKey{wire.SigningPublicKeyOf(key(other))}}}
		d.Sign(key(signs), key(signs))
		return d.Bytes()
	}
	s := &DeviceSetup{ConfigPath: filepath.Join(t.TempDir(), "agentd.yaml"), Disk: store.LocalDisk}
	if err := os.WriteFile(s.pathBesideConfig(rootFile), document(6, 2, 3), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.checkNextRoot(document(5, 3, 2)); err == nil || !strings.Contains(err.Error(), "already has version "+
		"6") {
		t.Errorf("version 5 in the place of version 6: %v", err)
	}
	if err := s.checkNextRoot(document(7, 3, 2)); err != nil {
		t.Error("version 7 in the place of version 6:", err)
	}
}

// TestAddress checks that the coordinator's address may end with a slash.
func TestAddress(t *testing.T) {
	o := open(t, 1)
	o.url += "/"
	if _, err := o.setup(t.TempDir(), o.token(t, "press-01", "")).Join(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestManInTheMiddle checks that a device sends no request to a server with another root key, and none to a server that
// has the coordinator's certificate without the private key.
func TestManInTheMiddle(t *testing.T) {
	o, thief := open(t, 1), open(t, 2)
	token := o.token(t, "press-01", "")
	k, err := NewDeviceKeys()
	if err != nil {
		t.Fatal(err)
	}
	copied, own := o.ListenerCertificate(), thief.ListenerCertificate()
	copied.PrivateKey = own.PrivateKey
	for name, certificate := range map[string]tls.Certificate{"its own root": own, "a copied certificate": copied} {
		sent := make(chan int, 1)
		l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{certificate}})
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			defer close(sent)
			if conn, err := l.Accept(); err == nil {
				n, _ := conn.Read(make([]byte, 100)) // data received over TLS
				sent <- n
				_ = conn.Close()
			}
		}()
		if _, err := RequestAdmission(t.Context(), "https://"+l.Addr().String(), &token, "press-01", &k); err == nil {
			t.Errorf("%s: joined", name)
		}
		_ = l.Close()
		if n := <-sent; n != 0 {
			t.Errorf("%s: %d bytes were sent", name, n)
		}
	}
	if _, err := RequestAdmission(t.Context(), o.url, &token, "press-01", &k); err != nil {
		t.Errorf("the coordinator itself: %v", err)
	}
}

// TestSettings checks that a device skips settings that the coordinator must not change, and that the value of a
// setting cannot add another key to the configuration.
func TestSettings(t *testing.T) {
	o := open(t, 1, wire.AgentSetting{Name: "broker.url", Value: "tls://gw.example:8883"},
		wire.AgentSetting{Name: "data.delimiter", Value: ";\"\npredict:\n  hook: [/bin/false]"},
		wire.AgentSetting{Name: "predict.hook", Value: "/bin/false"})
	dir := t.TempDir()
	s := o.setup(dir, o.token(t, "press-01", ""))
	if _, err := s.Join(t.Context()); err != nil {
		t.Fatal(err)
	}
	a, err := settings.ReadUnvalidatedAgent(s.ConfigPath)
	if err != nil || len(a.Predict.ModelHookCommand) > 0 || !strings.HasPrefix(a.Data.Delimiter, ";\"\npredict") {
		t.Errorf("the configuration is %+v, %v", a, err)
	}
	if want := []string{"predict.hook"}; fmt.Sprint(s.SkippedSettings) != fmt.Sprint(want) {
		t.Errorf("passed over are %v, want %v", s.SkippedSettings, want)
	}
}

// failing is a file system that fails after a number of operations (left). If once is true, only one operation fails.
// Otherwise all later operations fail, as if the process had been killed.
type failing struct {
	store.FS
	left *int
	once bool
}

var errKilled = errors.New("killed")

func (f failing) goes() error {
	if *f.left--; *f.left == -1 || *f.left < 0 && !f.once {
		return errKilled
	}
	return nil
}

func (f failing) OpenFile(path string, flag int, perm fs.FileMode) (store.File, error) {
	if err := f.goes(); err != nil {
		return nil, err
	}
	return f.FS.OpenFile(path, flag, perm)
}

func (f failing) Mkdir(dir string, perm fs.FileMode) error {
	if err := f.goes(); err != nil {
		return err
	}
	return f.FS.Mkdir(dir, perm)
}

func (f failing) Rename(from, to string) error {
	if err := f.goes(); err != nil {
		return err
	}
	return f.FS.Rename(from, to)
}

func (f failing) Remove(path string) error {
	if err := f.goes(); err != nil {
		return err
	}
	return f.FS.Remove(path)
}

func (f failing) SyncDir(dir string) error {
	if err := f.goes(); err != nil {
		return err
	}
	return f.FS.SyncDir(dir)
}

// TestRunKilled checks that the command can be repeated after the process was killed or an error occurred at any disk
// operation, and after the coordinator's answer was lost. TestRunKilled also tests a key rotation.
func TestRunKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("killed after each of its effects")
	}
	for i := range 4 { // with and without a key rotation, each with a killed process and with one failed operation
		rotated, once := i%2 == 1, i/2 == 1
		for cut := 0; ; cut++ {
			o, dir := open(t, 1), t.TempDir()
			token := o.token(t, "press-01", "")
			if rotated {
				if _, err := o.setup(dir, token).Join(t.Context()); err != nil {
					t.Fatal(err)
				}
				token = o.token(t, "press-01", "press-01")
			}
			left := cut
			s := o.setup(dir, token)
			s.Disk = store.Disk{FS: failing{store.LocalDisk.FS, &left, once}}
			_, first := s.Join(t.Context())
			if first != nil && !errors.Is(first, errKilled) {
				t.Fatalf("cut %d: %v", cut, first)
			}
			what := fmt.Sprintf("cut %d, rotated %v, once %v", cut, rotated, once)
			if _, err := o.setup(dir, token).Join(t.Context()); err != nil {
				t.Errorf("%s: the same again: %v", what, err)
			}
			o.joined(t, what, dir, "press-01")
			if left > 0 {
				if cut < 30 {
					t.Fatalf("joining takes %d operations of the disk: the test cuts none", cut)
				}
				break
			}
		}
	}
}

// TestAnswerLost checks that a repeated command receives the coordinator's answer if the first connection broke after
// the token was used.
func TestAnswerLost(t *testing.T) {
	o, dir := open(t, 1), t.TempDir()
	s := o.setup(dir, o.token(t, "press-01", ""))
	whole := s.RequestAdmission
	s.RequestAdmission = func(ctx context.Context, token *wire.EnrolmentToken, id wire.AgentID,
		k *DeviceKeys) (*VerifiedAdmission,
		error) {
		if _, err := whole(ctx, token, id, k); err != nil {
			return nil, err
		}
		return nil, net.ErrClosed
	}
	if _, err := s.Join(t.Context()); !errors.Is(err, net.ErrClosed) {
		t.Fatal(err)
	}
	s.RequestAdmission = whole
	if _, err := s.Join(t.Context()); err != nil {
		t.Fatal(err)
	}
	o.joined(t, "again", dir, "press-01")
}
