package wire_test

import (
	"crypto/ed25519"
	"math/rand/v2"
	"testing"

	"github.com/fedmesh/fedmesh/wire"
)

func randomRenew(rng *rand.Rand) wire.CredentialRenewalRequest {
	m := wire.CredentialRenewalRequest{NewKey: wire.SigningPublicKey(randomDigest(rng)), TLSKeySignature: []byte{}}
	key := rng.IntN(2) == 0
	if key {
		m.ListedKey, m.ListedKeySignature = wire.SigningPublicKey(randomDigest(rng)), wire.Signature(randomBytes(rng,
			64))
	}
	if !key || rng.IntN(2) == 0 {
		tls := wire.TLSPublicKey(randomBytes(rng, 65))
		m.TLSKey, m.TLSKeySignature = &tls, randomBytes(rng, 1+rng.IntN(72))
	}
	return m
}

func randomRenewed(rng *rand.Rand) wire.CredentialRenewalAnswer {
	if rng.IntN(3) == 0 {
		return wire.CredentialRenewalAnswer{RequestDigest: randomDigest(rng), RefusalReason: oneTo(rng,
			wire.RenewalStorageFailed),
			Certificate: []byte{}}
	}
	return wire.CredentialRenewalAnswer{RequestDigest: randomDigest(rng), Certificate: randomBytes(rng, rng.IntN(300))}
}

// goldenRenew returns a request for a new key and a certificate. Its TLS signature is a placeholder, because ECDSA
// signatures are random.
func goldenRenew() *wire.CredentialRenewalRequest {
	next := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	m := &wire.CredentialRenewalRequest{NewKey: wire.SigningPublicKeyOf(testKey()), TLSKey: &wire.TLSPublicKey{4, 1, 2,
		3},
		TLSKeySignature: []byte{0x30, 0}}
	m.SignWithListedKey("plant_7", "press-01", next)
	return m
}

// TestVouched checks when a new key is authorised: either it is the key in the list of agents, or the listed key has
// signed the whole request for this device.
func TestVouched(t *testing.T) {
	before, after, other := signKeyNumbered(1), signKeyNumbered(2), signKeyNumbered(3)
	m := wire.CredentialRenewalRequest{NewKey: wire.SigningPublicKeyOf(after), TLSKey: &wire.TLSPublicKey{4}}
	m.SignWithListedKey("plant", "press", before)
	alone := func(m *wire.CredentialRenewalRequest) {
		*m = wire.CredentialRenewalRequest{NewKey: m.NewKey, TLSKey: m.TLSKey}
	}
	for name, tt := range map[string]struct {
		listed ed25519.PrivateKey
		change func(*wire.CredentialRenewalRequest)
		agent  wire.AgentID
		want   bool
	}{
		"by the key before": {before, nil, "press", true},
		"swapped already":   {after, nil, "press", true},
		"another key":       {other, nil, "press", false},
		"another device":    {before, nil, "mill", false},
		"a claim": {other, func(m *wire.CredentialRenewalRequest) { m.ListedKey = wire.SigningPublicKeyOf(other) },
			"press",
			false},
		"another certificate": {before, func(m *wire.CredentialRenewalRequest) { m.TLSKey = &wire.TLSPublicKey{5} },
			"press", false},
		"another key after": {before,
			func(m *wire.CredentialRenewalRequest) { m.NewKey = wire.SigningPublicKeyOf(other) },
			"press",
			false},
		"without another key":  {before, alone, "press", false},
		"without it, the same": {after, alone, "press", true},
	} {
		is := m
		if tt.change != nil {
			tt.change(&is)
		}
		if got := is.IsVouchedByListedKey(wire.SigningPublicKeyOf(tt.listed), "plant", tt.agent); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if is := m; is.IsVouchedByListedKey(wire.SigningPublicKeyOf(before), "mill", "press") {
		t.Error("in another federation")
	}
	if is := (&wire.CredentialRenewalRequest{NewKey: wire.SigningPublicKeyOf(after)}); is.IsVouchedByListedKey(
		wire.SigningPublicKey{}, "plant", "press") {
		t.Error("a key that is not there vouches")
	}
}

func signKeyNumbered(n byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(append(make([]byte, ed25519.SeedSize-1), n))
}

// TestHalfARequest checks that requests without content, without a signature or without a key are rejected.
func TestHalfARequest(t *testing.T) {
	good := *goldenRenew()
	for name, change := range map[string]func(*wire.CredentialRenewalRequest){
		"nothing": func(m *wire.CredentialRenewalRequest) {
			*m = wire.CredentialRenewalRequest{
				NewKey: m.NewKey}
		},
		"no signature by " +
			"before": func(m *wire.CredentialRenewalRequest) { m.ListedKeySignature = wire.Signature{} },
		"no key before":               func(m *wire.CredentialRenewalRequest) { m.ListedKey = wire.SigningPublicKey{} },
		"the same key before":         func(m *wire.CredentialRenewalRequest) { m.ListedKey = m.NewKey },
		"no signature by certificate": func(m *wire.CredentialRenewalRequest) { m.TLSKeySignature = nil },
		"no key of the certificate":   func(m *wire.CredentialRenewalRequest) { m.TLSKey = nil },
	} {
		m := good
		change(&m)
		if _, err := wire.DecodeCredentialRenewalRequest(m.Body()); err == nil {
			t.Errorf("%s: is read", name)
		}
	}
	both := wire.CredentialRenewalAnswer{RefusalReason: wire.RenewalKeyOfOtherDevice, Certificate: []byte{1}}
	if _, err := wire.DecodeCredentialRenewalAnswer(both.Body()); err == nil {
		t.Error("a refusal with a certificate is read")
	}
}
