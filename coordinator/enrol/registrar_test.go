package enrol

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// members is an in-memory AgentList.
type members struct {
	is   map[wire.AgentID]wire.SigningPublicKey
	err  error // error that the next Admit returns
	wait bool  // true if Admit blocks until ctx ends
}

func (m *members) Check(id wire.AgentID, key wire.SigningPublicKey, replaces wire.AgentID) error {
	for other, k := range m.is {
		switch {
		case other == id && k != key && id != replaces:
			return ErrListed
		case other != id && k == key && other != replaces:
			return ErrOther
		}
	}
	return nil
}

func (m *members) Has(id wire.AgentID, key wire.SigningPublicKey) (bool, error) {
	k, is := m.is[id]
	return is && k == key, nil
}

func (m *members) Admit(ctx context.Context, id wire.AgentID, key wire.SigningPublicKey, replaces wire.AgentID) error {
	if m.wait {
		<-ctx.Done()
		return ctx.Err()
	}
	if m.err != nil {
		return m.err
	}
	delete(m.is, replaces)
	m.is[id] = key
	return nil
}

// told records the events of a Registrar.
type told []observe.Event

func (t *told) Observe(f observe.Event) { *t = append(*t, f) }

// lifeOfTests is the validity of the certificates in tests.
const lifeOfTests = 100 * time.Hour

// office is a Registrar with its test environment.
type office struct {
	*Registrar
	t       testing.TB
	cfg     Config
	members *members
	told    told
	now     time.Time
}

func newOffice(t testing.TB) *office {
	t.Helper()
	o := &office{t: t, members: &members{is: map[wire.AgentID]wire.SigningPublicKey{}}, now: time.Unix(1_700_000_000,
		0)}
	authority := newAuthority(t)
	key := keyNumbered(1)
	root := wire.RootDocument{Federation: "plant_7", Version: wire.FirstRootVersion,
		CoordinatorKey:    wire.SigningPublicKeyOf(key),
		CACertificateHash: authority.CertificateDigest(), RevokedAgents: []wire.AgentID{"stolen"}}
	root.Sign(keyNumbered(2), nil)
	o.cfg = Config{EncodedRootDocument: root.Bytes(), CoordinatorKey: key, CertificateAuthority: authority,
		DeviceCertificateLifetime: lifeOfTests,
		List:                      o.members,
		Observer:                  &o.told,
		SharedDeviceSettings:      []wire.AgentSetting{{Name: "broker.url", Value: "tls://gw:8883"}},
		MakeBrokerUserName:        func(id wire.AgentID) string { return "plant_7-" + string(id) },
		Disk:                      store.LocalDisk,
		StateDir:                  t.TempDir(), Now: func() time.Time { return o.now }}
	o.open()
	return o
}

func newAuthority(t testing.TB) *CertificateAuthority {
	t.Helper()
	a, err := NewCertificateAuthority("plant_7", newDevice(t, 0).tls, time.Unix(1_700_000_000, 0))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// open opens the Registrar, as a new process does.
func (o *office) open() {
	o.t.Helper()
	var err error
	if o.Registrar, err = Open(o.cfg); err != nil {
		o.t.Fatal(err)
	}
}

func (o *office) token(agent, replaces wire.AgentID, ttl time.Duration) wire.EnrolmentToken {
	o.t.Helper()
	token, err := o.IssueToken(agent, replaces, ttl)
	if err != nil {
		o.t.Fatal(err)
	}
	return token
}

func keyNumbered(n byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{n}, ed25519.SeedSize))
}

// device contains the private keys of a device.
type device struct {
	key ed25519.PrivateKey
	tls *ecdsa.PrivateKey
}

func newDevice(t testing.TB, n byte) device {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return device{keyNumbered(n), key}
}

var binding = bytes.Repeat([]byte{7}, 32)

// join returns the join request of a device.
func (d device) join(t testing.TB, token wire.EnrolmentToken, agent wire.AgentID) *wire.EnrolmentRequest {
	t.Helper()
	return d.joinOver(t, binding, token, agent)
}

// joinOver returns a join request for a connection with the given binding.
func (d device) joinOver(t testing.TB, binding []byte, token wire.EnrolmentToken,
	agent wire.AgentID) *wire.EnrolmentRequest {
	t.Helper()
	public, err := d.tls.PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	j := &wire.EnrolmentRequest{Agent: agent, DeviceKey: wire.SigningPublicKeyOf(d.key),
		TLSKey: wire.TLSPublicKey(public)}
	text := j.SignedText(binding)
	j.TokenSignature, j.DeviceKeySignature = wire.Signature(ed25519.Sign(token.SigningKey(), text)),
		wire.Signature(ed25519.Sign(d.key, text))
	sum := sha256.Sum256(text)
	if j.TLSKeySignature, err = ecdsa.SignASN1(rand.Reader, d.tls, sum[:]); err != nil {
		t.Fatal(err)
	}
	return j
}

var home = netip.MustParseAddr("192.0.2.7")

func (o *office) ask(j *wire.EnrolmentRequest) wire.EnrolmentAnswer {
	return o.Join(context.Background(), j, binding, home)
}

// want sends a join request and checks the reason for which it is refused. 0 means that the request must succeed.
func (o *office) want(what string, j *wire.EnrolmentRequest, want wire.EnrolmentRefusalReason) wire.EnrolmentAnswer {
	o.t.Helper()
	a := o.ask(j)
	if a.RefusalReason != want {
		o.t.Errorf("%s: refused is %v, want %v", what, a.RefusalReason, want)
	}
	return a
}

// TestJoin checks that a device receives a certificate for its name and key and is added to the list.
func TestJoin(t *testing.T) {
	o, d := newOffice(t), newDevice(t, 9)
	j := d.join(t, o.token("press-01", "", time.Hour), "press-01")
	a := o.want("a join", j, 0)
	leaf, err := x509.ParseCertificate(a.Certificate)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(o.cfg.CertificateAuthority.Certificate)
	for _, at := range []time.Time{o.now.Add(-time.Hour / 2), o.now, o.now.Add(lifeOfTests - time.Second)} {
		_, err = leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: at,
			KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
		if err != nil {
			t.Errorf("at %s: %v", at, err)
		}
	}
	if got := leaf.NotAfter.Sub(leaf.NotBefore); got != lifeOfTests*101/100 {
		t.Errorf("the certificate counts for %s", got)
	}
	if !d.tls.PublicKey.Equal(leaf.PublicKey) || leaf.Subject.CommonName != "plant_7-press-01" || leaf.IsCA {
		t.Errorf("the certificate is %+v of %v", leaf.Subject, leaf.PublicKey)
	}
	if !bytes.Equal(a.RootDocument, o.cfg.EncodedRootDocument) || !bytes.Equal(a.CACertificate,
		o.cfg.CertificateAuthority.Certificate.Raw) ||
		!reflect.DeepEqual(a.Settings, o.cfg.SharedDeviceSettings) {
		t.Errorf("the answer is %+v", a)
	}
	if o.members.is["press-01"] != wire.SigningPublicKeyOf(d.key) {
		t.Errorf("the list is %v", o.members.is)
	}
	if want := (told{DeviceJoined{Agent: "press-01"}}); !reflect.DeepEqual(o.told, want) {
		t.Errorf("told was %+v, want %+v", o.told, want)
	}
}

// TestJoinAgain checks that a device whose answer was lost can repeat its request until the token expires, even after a
// restart. It receives the same answer. Another device cannot use the token.
func TestJoinAgain(t *testing.T) {
	o, d, thief := newOffice(t), newDevice(t, 9), newDevice(t, 10)
	token := o.token("press-01", "", time.Hour)
	first := o.want("a join", d.join(t, token, "press-01"), 0)
	for range 2 {
		o.now = o.now.Add(20 * time.Minute)
		if again := o.want("once more", d.join(t, token, "press-01"), 0); !reflect.DeepEqual(again, first) {
			t.Errorf("the answer is another one: %+v, then %+v", first, again)
		}
		o.want("another key", thief.join(t, token, "press-01"), wire.EnrolmentTokenUsed)
		half := d
		half.tls = thief.tls
		o.want("another key of the certificate", half.join(t, token, "press-01"), wire.EnrolmentTokenUsed)
		o.open()
	}
	o.now = o.now.Add(20 * time.Minute)
	o.want("expired", d.join(t, token, "press-01"), wire.EnrolmentUnknownToken)
	if f, ok := o.told[1].(DeviceJoined); !ok || !f.IsRepeated {
		t.Errorf("told was %+v", o.told)
	}
}

// TestJoinRefused checks that every invalid join request receives an answer and that the token remains valid.
func TestJoinRefused(t *testing.T) {
	o, d, other := newOffice(t), newDevice(t, 9), newDevice(t, 10)
	o.members.is["press-02"] = wire.SigningPublicKeyOf(other.key)
	token := o.token("press-01", "", time.Hour)
	guess := token
	guess.Secret[3] ^= 1
	foreign := d.join(t, token, "press-01")
	foreign.TokenSignature = wire.Signature(ed25519.Sign(token.SigningKey(), foreign.SignedText(bytes.Repeat([]byte{8},
		32))))
	stolen := d.join(t, token, "press-01") // request with the public key of another device
	stolen.DeviceKey = wire.SigningPublicKeyOf(other.key)
	stolen.TokenSignature = wire.Signature(ed25519.Sign(token.SigningKey(), stolen.SignedText(binding)))
	leaf := d.join(t, token, "press-01")
	leaf.TLSKeySignature[len(leaf.TLSKeySignature)-1] ^= 1
	point := d.join(t, token, "press-01")
	point.TLSKey[64] ^= 1
	point.TokenSignature = wire.Signature(ed25519.Sign(token.SigningKey(), point.SignedText(binding)))
	point.DeviceKeySignature = wire.Signature(ed25519.Sign(d.key, point.SignedText(binding)))
	for name, tt := range map[string]struct {
		join *wire.EnrolmentRequest
		want wire.EnrolmentRefusalReason
	}{
		"a guessed secret":            {d.join(t, guess, "press-01"), wire.EnrolmentUnknownToken},
		"another device's name":       {d.join(t, token, "press-03"), wire.EnrolmentUnknownToken},
		"a listed device's name":      {d.join(t, token, "press-02"), wire.EnrolmentUnknownToken},
		"of another connection":       {foreign, wire.EnrolmentUnknownToken},
		"a key that it does not have": {stolen, wire.EnrolmentUnknownToken},
		"no key of the certificate":   {leaf, wire.EnrolmentUnknownToken},
		"no point of the curve":       {point, wire.EnrolmentUnknownToken},
		"the key of another device":   {other.join(t, token, "press-01"), wire.EnrolmentKeyOfOtherDevice},
		"a listed device, with another": {d.join(t, o.token("press-02", "", time.Hour), "press-02"),
			wire.EnrolmentOtherKeyListed},
	} {
		o.attemptLimiter.ForgetFailures()
		o.want(name, tt.join, tt.want)
	}
	o.want("then the right one", d.join(t, token, "press-01"), 0)
}

// TestTries checks that a source may fail five times per minute. Its sixth attempt is rejected, while requests from
// other sources are served.
func TestTries(t *testing.T) {
	o, d := newOffice(t), newDevice(t, 9)
	token := o.token("press-01", "", time.Hour)
	guess := token
	guess.Secret[3] ^= 1
	for i := range host.MaxAttempts {
		o.want(fmt.Sprint("try ", i), d.join(t, guess, "press-01"), wire.EnrolmentUnknownToken)
	}
	o.want("the right token, from there", d.join(t, token, "press-01"), wire.EnrolmentTooManyTries)
	a := o.Join(context.Background(), d.join(t, token, "press-01"), binding, netip.MustParseAddr("192.0.2.8"))
	if a.RefusalReason != 0 {
		t.Errorf("from another address: %v", a.RefusalReason)
	}
	o.now = o.now.Add(2 * time.Minute)
	o.want("two minutes later", d.join(t, token, "press-01"), 0)
}

// TestReplace checks that a device can replace its own entry or the entry of its former name.
func TestReplace(t *testing.T) {
	o, old, fresh := newOffice(t), newDevice(t, 9), newDevice(t, 10)
	o.members.is["press-01"] = wire.SigningPublicKeyOf(old.key)
	o.want("rotated", fresh.join(t, o.token("press-01", "press-01", time.Hour), "press-01"), 0)
	renamed := o.token("press-1", "press-01", time.Hour)
	o.want("renamed", fresh.join(t, renamed, "press-1"), 0)
	want := map[wire.AgentID]wire.SigningPublicKey{"press-1": wire.SigningPublicKeyOf(fresh.key)}
	if !reflect.DeepEqual(o.members.is, want) {
		t.Errorf("the list is %v, want %v", o.members.is, want)
	}
	if err := o.RemoveTokensOfDevice("press-1"); err != nil {
		t.Fatal(err)
	}
	o.open()
	o.want("after it was revoked", fresh.join(t, renamed, "press-1"), wire.EnrolmentUnknownToken)
}

// TestUsedTokenStaysUsed checks that a token that was used once does not change the list again. A device that was
// renamed or removed does not return to the list, and a new device that took over the freed name is not removed.
func TestUsedTokenStaysUsed(t *testing.T) {
	o, d, next := newOffice(t), newDevice(t, 9), newDevice(t, 10)
	first := o.token("old", "", time.Hour)
	o.want("a join", d.join(t, first, "old"), 0)
	second := o.token("new", "old", time.Hour)
	o.want("a rename", d.join(t, second, "new"), 0)
	if a := o.ask(d.join(t, first, "old")); a.RefusalReason == 0 {
		t.Error("the renamed device has come back under its old name")
	}
	o.want("the freed name", next.join(t, o.token("old", "", time.Hour), "old"), 0)
	o.want("the rename again", d.join(t, second, "new"), 0)
	want := map[wire.AgentID]wire.SigningPublicKey{"old": wire.SigningPublicKeyOf(next.key),
		"new": wire.SigningPublicKeyOf(d.key)}
	if !reflect.DeepEqual(o.members.is, want) {
		t.Errorf("the list is %v, want %v", o.members.is, want)
	}
	delete(o.members.is, "new") // simulates a manual edit of the list
	o.open()
	o.want("taken out by hand", d.join(t, second, "new"), wire.EnrolmentTokenUsed)
	if _, is := o.members.is["new"]; is {
		t.Error("a device that was taken out is back")
	}
}

// TestOpenToken checks that any unlisted device may join with an open token, and that open enrolment is reported.
func TestOpenToken(t *testing.T) {
	o := newOffice(t)
	token := o.token("", "", time.Hour)
	for i, id := range []wire.AgentID{"a", "b"} {
		o.want("open", newDevice(t, byte(20+i)).join(t, token, id), 0)
	}
	o.want("listed", newDevice(t, 30).join(t, token, "a"), wire.EnrolmentOtherKeyListed)
	if until := o.OpenJoinUntil(); !until.Equal(o.now.Add(time.Hour)) {
		t.Errorf("open until %s", until)
	}
	o.now = o.now.Add(time.Hour)
	o.want("expired", newDevice(t, 31).join(t, token, "c"), wire.EnrolmentUnknownToken)
	if until := o.OpenJoinUntil(); !until.IsZero() {
		t.Errorf("open until %s", until)
	}
	if f, ok := o.told[len(o.told)-2].(OpenJoinChanged); !ok || !f.OpenUntil.IsZero() {
		t.Errorf("told was %+v", o.told)
	}
	own := o.token("d", "", time.Hour)
	token = o.token("", "", time.Hour)
	if err := o.RevokeOpenToken(); err != nil || !o.OpenJoinUntil().IsZero() {
		t.Errorf("closed: %v, open until %s", err, o.OpenJoinUntil())
	}
	o.open()
	o.want("closed", newDevice(t, 32).join(t, token, "e"), wire.EnrolmentUnknownToken)
	o.want("a token of its own", newDevice(t, 33).join(t, own, "d"), 0)
}

// TestTokenRefused checks that no token is issued for an invalid device name.
func TestTokenRefused(t *testing.T) {
	o := newOffice(t)
	for _, id := range []wire.AgentID{"coordinator", "a b", "stolen", wire.AgentID(bytes.Repeat([]byte{'x'}, 58))} {
		if _, err := o.IssueToken(id, "", time.Hour); err == nil {
			t.Errorf("a token for %q", id)
		}
	}
	if _, err := o.IssueToken("", "press-01", time.Hour); err == nil {
		t.Error("a token of any device in the place of one")
	}
	long := wire.AgentID(bytes.Repeat([]byte{'x'}, 58))
	o.want("a long name", newDevice(t, 9).join(t, o.token("", "", time.Hour), long), wire.EnrolmentStorageFailed)
	if len(o.members.is) > 0 {
		t.Errorf("the list is %v", o.members.is)
	}
}

// TestOpenRefused checks that mismatched keys and damaged tokens are rejected.
func TestOpenRefused(t *testing.T) {
	other := newAuthority(t)
	for name, change := range map[string]func(*Config){
		"the coordinator's key": func(c *Config) { c.CoordinatorKey = keyNumbered(5) },
		"the authority":         func(c *Config) { c.CertificateAuthority = other },
		"the authority's key": func(c *Config) {
			c.CertificateAuthority = &CertificateAuthority{c.CertificateAuthority.Certificate, other.Key}
		},
		"the root document": func(c *Config) { c.EncodedRootDocument = c.EncodedRootDocument[1:] },
		"the tokens": func(c *Config) {
			if err := os.WriteFile(filepath.Join(c.StateDir, runs.Tokens.Name), []byte("FMR1"), 0o600); err != nil {
				t.Fatal(err)
			}
		},
	} {
		o := newOffice(t)
		change(&o.cfg)
		if _, err := Open(o.cfg); err == nil {
			t.Errorf("%s: opened", name)
		}
	}
}

// failing is a file system that simulates a power cut after *left operations. The last write is truncated.
type failing struct {
	store.FS
	left *int
}

var errPower = errors.New("the power is out")

func (f failing) goes() error {
	if *f.left--; *f.left < 0 {
		return errPower
	}
	return nil
}

type failingFile struct {
	store.File
	fs failing
}

func (f failing) OpenFile(path string, flag int, perm fs.FileMode) (store.File, error) {
	if err := f.goes(); err != nil {
		return nil, err
	}
	file, err := f.FS.OpenFile(path, flag, perm)
	return failingFile{file, f}, err
}

func (f failing) Rename(from, to string) error {
	if err := f.goes(); err != nil {
		return err
	}
	return f.FS.Rename(from, to)
}

func (f failing) SyncDir(dir string) error {
	if err := f.goes(); err != nil {
		return err
	}
	return f.FS.SyncDir(dir)
}

func (f failing) Remove(path string) error {
	if err := f.goes(); err != nil {
		return err
	}
	return f.FS.Remove(path)
}

func (f failingFile) Write(p []byte) (int, error) {
	if err := f.fs.goes(); err != nil {
		_, _ = f.File.Write(p[:len(p)/2])
		return 0, err
	}
	return f.File.Write(p)
}

func (f failingFile) Sync() error {
	if err := f.fs.goes(); err != nil {
		return err
	}
	return f.File.Sync()
}

// TestJoinKilled simulates a power cut at each disk operation and while the list is written. No answer may be sent for
// a token that is not recorded as used. The device can repeat its request with the same keys, and other devices cannot
// use the token.
func TestJoinKilled(t *testing.T) {
	for cut := 0; ; cut++ {
		o, d, thief := newOffice(t), newDevice(t, 9), newDevice(t, 10)
		token := o.token("press-01", "", time.Hour)
		left := cut
		whole := o.cfg.Disk
		o.cfg.Disk = store.Disk{FS: failing{whole.FS, &left}}
		o.tokens.disk = o.cfg.Disk
		if cut == 0 {
			o.members.err, left = errPower, 100
		}
		a := o.ask(d.join(t, token, "press-01"))
		given := a.RefusalReason == 0
		if !given && a.RefusalReason != wire.EnrolmentStorageFailed {
			t.Fatalf("cut %d: %v", cut, a.RefusalReason)
		}
		o.cfg.Disk, o.members.err = whole, nil
		o.open()
		burnt := o.tokens.storedTokens[0].isUsed()
		if given && !burnt {
			t.Errorf("cut %d: an answer was given, and the token is not burnt", cut)
		}
		if burnt {
			o.want(fmt.Sprint("another device after cut ", cut), thief.join(t, token, "press-01"),
				wire.EnrolmentTokenUsed)
		}
		o.want(fmt.Sprint("the device after cut ", cut), d.join(t, token, "press-01"), 0)
		o.want("another one", thief.join(t, token, "press-01"), wire.EnrolmentTokenUsed)
		if given && cut > 0 && left > 0 {
			if cut < 5 {
				t.Fatalf("a burn takes %d operations of the disk: the test cuts none", cut)
			}
			return
		}
	}
}
