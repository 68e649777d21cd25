package wire_test

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/wire"
)

// keyNumbered returns a test key whose seed consists of one repeated byte.
func keyNumbered(n byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed([]byte(strings.Repeat(string(rune(n)), ed25519.SeedSize)))
}

func firstRoot() wire.RootDocument {
	d := wire.RootDocument{Federation: "plant_7", Version: wire.FirstRootVersion,
		CoordinatorKey:    wire.SigningPublicKeyOf(testKey()),
		CACertificateHash: wire.Digest{1, 2, 3}}
	d.Sign(keyNumbered(1), nil)
	return d
}

func secondRoot() wire.RootDocument {
	d := firstRoot()
	d.Version, d.CoordinatorKey = 2, wire.SigningPublicKeyOf(keyNumbered(3))
	d.RevokedAgents = []wire.AgentID{"press-01", "press-02"}
	d.Sign(keyNumbered(2), keyNumbered(1))
	return d
}

// sharedRoot returns a root document with three root keys, a threshold of two, and two coordinator keys.
func sharedRoot() wire.RootDocument {
	d := secondRoot()
	d.Version, d.ExtraCoordinatorKeys = 3, []wire.SigningPublicKey{wire.SigningPublicKeyOf(testKey())}
	shareRoot(&d, 2, keyNumbered(1), keyNumbered(2), keyNumbered(5))
	d.Sign(keyNumbered(1), keyNumbered(2))
	d.Cosign(keyNumbered(5))
	return d
}

// shareRoot signs the root document d with the given keys. The first key becomes RootKey.
func shareRoot(d *wire.RootDocument, threshold uint8, keys ...ed25519.PrivateKey) {
	d.RootQuorum = wire.RootQuorum{Threshold: threshold}
	for _, k := range keys[1:] {
		d.RootQuorum.ExtraKeys = append(d.RootQuorum.ExtraKeys, wire.SigningPublicKeyOf(k))
	}
	slices.SortFunc(d.RootQuorum.ExtraKeys, func(a, b wire.SigningPublicKey) int { return bytes.Compare(a[:], b[:]) })
}

func goldenToken() wire.EnrolmentToken {
	t := wire.EnrolmentToken{Agent: "press-01", Pin: wire.SigningPublicKeyOf(keyNumbered(1)).RootPin()}
	copy(t.Secret[:], "sixteen secrets!")
	return t
}

func goldenJoin() wire.EnrolmentRequest {
	t := goldenToken()
	j := wire.EnrolmentRequest{Agent: "press-01", DeviceKey: wire.SigningPublicKeyOf(keyNumbered(4)),
		TLSKey:          wire.TLSPublicKey{4, 1, 2},
		TLSKeySignature: []byte{0x30, 6, 2, 1, 1, 2, 1, 1}}
	text := j.SignedText(make([]byte, 32))
	j.TokenSignature, j.DeviceKeySignature = wire.Signature(ed25519.Sign(t.SigningKey(), text)),
		wire.Signature(ed25519.Sign(keyNumbered(4), text))
	return j
}

func goldensOfJoining() []golden {
	first, second, shared, join := firstRoot(), secondRoot(), sharedRoot(), goldenJoin()
	return []golden{
		{"root", "root", wire.Header{}, &first},
		{"root_second", "root", wire.Header{}, &second},
		{"root_shared", "root", wire.Header{}, &shared},
		{"join", "join", wire.Header{}, &join},
		{"admission", "admission", wire.Header{}, &wire.EnrolmentAnswer{RootDocument: first.Bytes(),
			Certificate:   []byte("leaf"),
			CACertificate: []byte("authority"), Settings: []wire.AgentSetting{{Name: "broker.url",
				Value: "tls://gw:8883"}}}},
		{"admission_refused", "admission", wire.Header{},
			&wire.EnrolmentAnswer{RefusalReason: wire.EnrolmentTokenUsed}},
	}
}

// TestOpenRoot checks that a root document is valid only if its own root key has signed the whole document and the
// document has no unknown mandatory section.
func TestOpenRoot(t *testing.T) {
	d := secondRoot()
	if got, err := wire.DecodeAndVerifyRootDocument(d.Bytes()); err != nil || got.CoordinatorKey != d.CoordinatorKey {
		t.Fatalf("%+v, %v", got, err)
	}
	p := d.Bytes()
	for i := range p {
		if i >= len(p)-128 && i < len(p)-64 {
			continue
		}
		p[i] ^= 1
		if _, err := wire.DecodeAndVerifyRootDocument(p); err == nil {
			t.Errorf("a document that was changed at byte %d counts", i)
		}
		p[i] ^= 1
	}
	d.Extra = wire.UnknownSections{{Name: "threshold", UnknownPolicy: wire.DeclineUnknownSection, Body: []byte{2}}}
	d.Sign(keyNumbered(2), keyNumbered(1))
	if _, err := wire.DecodeAndVerifyRootDocument(d.Bytes()); !errors.Is(err, wire.ErrUnsupportedSection) {
		t.Errorf("a section that must not be passed over: %v", err)
	}
}

// TestFollows checks which root document may replace a document: only the next version for the same federation that the
// current root key has signed.
func TestFollows(t *testing.T) {
	held := firstRoot()
	for name, change := range map[string]struct {
		version    wire.RootVersion
		federation wire.FederationName
		before     ed25519.PrivateKey
	}{
		"":                      {2, "plant_7", keyNumbered(1)},
		"version is 3":          {3, "plant_7", keyNumbered(1)},
		"version is 1":          {1, "plant_7", keyNumbered(1)},
		"too few signatures":    {2, "plant_7", keyNumbered(2)},
		"version 2 has too few": {2, "plant_7", nil},
		"federation is air":     {2, "air", keyNumbered(1)},
	} {
		d := secondRoot()
		d.Version, d.Federation = change.version, change.federation
		d.Sign(keyNumbered(2), change.before)
		d, err := wire.DecodeAndVerifyRootDocument(d.Bytes())
		if err != nil {
			t.Fatal(name, err)
		}
		err = d.CheckSuccession(&held)
		if got := fmt.Sprint(err); (err == nil) != (name == "") || !strings.Contains(got, name) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestThreshold checks the number of root keys that must sign a new version: as many as the thresholds of both the new
// version and the previous version require. Two signatures with the same key must count once.
func TestThreshold(t *testing.T) {
	held := sharedRoot()
	if _, err := wire.DecodeAndVerifyRootDocument(held.Bytes()); err != nil {
		t.Fatal(err)
	}
	a, b, c, other := keyNumbered(1), keyNumbered(2), keyNumbered(5), keyNumbered(6)
	for _, x := range []struct {
		name      string
		threshold uint8 // threshold of the next version, whose root keys are in own
		own       []ed25519.PrivateKey
		before    ed25519.PrivateKey
		joint     []ed25519.PrivateKey
		open      bool
		follows   bool
	}{
		{"two of the three sign", 2, []ed25519.PrivateKey{c, a, b}, c, []ed25519.PrivateKey{b}, true, true},
		{"another two sign, and one of them goes", 1, []ed25519.PrivateKey{b, a}, a, nil, true, true},
		{"one signs twice", 2, []ed25519.PrivateKey{a, b, c}, a, []ed25519.PrivateKey{a}, false, false},
		{"one of three makes itself enough", 1, []ed25519.PrivateKey{a, b, c}, a, []ed25519.PrivateKey{a}, true, false},
		{"a stranger helps", 1, []ed25519.PrivateKey{a, other}, a, []ed25519.PrivateKey{other}, true, false},
		{"two sign away their root", 1, []ed25519.PrivateKey{other}, a, []ed25519.PrivateKey{b}, true, true},
	} {
		d := sharedRoot()
		d.Version, d.Cosignatures = 4, nil
		shareRoot(&d, x.threshold, x.own...)
		d.Sign(x.own[0], x.before)
		for _, k := range x.joint {
			d.Cosign(k)
		}
		got, err := wire.DecodeAndVerifyRootDocument(d.Bytes())
		if (err == nil) != x.open {
			t.Errorf("%s: %v", x.name, err)
		}
		if err = got.CheckSuccession(&held); (err == nil) != x.follows {
			t.Errorf("%s: follows: %v", x.name, err)
		}
	}
	one := sharedRoot()
	one.RootQuorum.Threshold = 1
	one.Sign(keyNumbered(1), nil)
	swapped := sharedRoot()
	shareRoot(&swapped, 2, c, a, b)
	swapped.Sign(c, nil)
	if held.RootPin() == one.RootPin() || held.RootPin() != swapped.RootPin() ||
		held.RootPin() == held.RootKey.RootPin() {
		t.Error("the pin must stand for all root keys and their threshold, whichever of them has signed first")
	}
}

// TestToken checks that a printed enrolment token can be parsed, and that removed, added or changed characters are
// detected. The key derived from the token must depend on the device.
func TestToken(t *testing.T) {
	token := goldenToken()
	text := token.String()
	const want = "fm1.press-01.ONUXQ5DFMVXCA43FMNZGK5DTEE2HKD4YXVM7Z7EUNWSFVKV6SM57SIUCDA"
	if !strings.HasPrefix(text, want) || len(text) != len("fm1.press-01.")+58 {
		t.Errorf("the token is %s", text)
	}
	for _, spelled := range []string{text, strings.ToLower(text), " " + text + "\n"} {
		if got, err := wire.ParseEnrolmentToken(spelled); err != nil || got != token {
			t.Errorf("%q is read as %+v, %v", spelled, got, err)
		}
	}
	if got, err := wire.ParseEnrolmentToken((&wire.EnrolmentToken{}).String()); err != nil || got.Agent != "" {
		t.Errorf("a token for any device: %+v, %v", got, err)
	}
	for i := range text {
		for _, wrong := range []string{text[:i], text[:i] + text[i+1:], text[:i] + "Z" + text[i+1:],
			text[:i] + "!" + text[i:]} {
			if got, err := wire.ParseEnrolmentToken(wrong); err == nil && wrong != text {
				t.Errorf("%q is read as %+v", wrong, got)
			}
		}
	}
	other := token
	other.Agent = "press-02"
	if token.SigningKey().Equal(other.SigningKey()) {
		t.Error("the key does not depend on the device")
	}
}

func FuzzRoot(f *testing.F) { fuzzForms(f, "root") }
func FuzzJoin(f *testing.F) { fuzzForms(f, "join", "admission") }

func FuzzToken(f *testing.F) {
	token := goldenToken()
	f.Add(token.String())
	f.Fuzz(func(t *testing.T, s string) {
		got, err := wire.ParseEnrolmentToken(s)
		if err != nil {
			return
		}
		if again, err := wire.ParseEnrolmentToken(got.String()); err != nil || again != got {
			t.Errorf("%q is read as %+v, which is read again as %+v, %v", s, got, again, err)
		}
	})
}
