package wire_test

import (
	"crypto/ed25519"
	"errors"
	"testing"

	"github.com/fedmesh/fedmesh/wire"
)

// resign signs an envelope again, as docs/PROTOCOL.md describes, in the signature domain of the message type typ.
func resign(p []byte, typ wire.MessageType) {
	domain := append([]byte("fedmesh/v2/"+typ.String()), 0)
	copy(p[headerSize:], ed25519.Sign(testKey(), append(domain, p[:headerSize]...)))
}

func TestSignatureIsAsDocumented(t *testing.T) {
	p := readGolden(t, "hello")
	clear(p[headerSize:envelopeSize])
	resign(p, wire.TypeHello)
	e, err := wire.ParseEnvelope(p)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Verify(testPublicKey()); err != nil {
		t.Error(err)
	}
}

// TestDomainsAreSeparate checks that a signature for one message type is not valid for another message type. This must
// hold if the type in the header is changed after signing, and if the header is correct but the signature was made for
// the other type.
func TestDomainsAreSeparate(t *testing.T) {
	for _, made := range types() {
		for _, used := range types() {
			if made == used {
				continue
			}
			p := wire.SignEnvelope(nil, randomHeader(seeded(4), made), []byte("body"), testKey())
			p[5] = byte(used)
			mustNotVerify(t, p, made, used)
			resign(p, made) // The header has the type used, and the signature has the domain of the type made.
			mustNotVerify(t, p, made, used)
		}
	}
}

func mustNotVerify(t *testing.T, p []byte, made, used wire.MessageType) {
	t.Helper()
	e, err := wire.ParseEnvelope(p)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Verify(testPublicKey()); !errors.Is(err, wire.ErrSignature) {
		t.Errorf("signed as %v, used as %v: error %v", made, used, err)
	}
}

func TestVerifyNeedsTheSendersKey(t *testing.T) {
	e, err := wire.ParseEnvelope(readGolden(t, "hello"))
	if err != nil {
		t.Fatal(err)
	}
	other := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)).Public().(ed25519.PublicKey)
	for name, key := range map[string]ed25519.PublicKey{"another": other, "none": nil, "short": testPublicKey()[:31]} {
		if err := e.Verify(key); !errors.Is(err, wire.ErrSignature) {
			t.Errorf("key %s: error %v", name, err)
		}
	}
	if err := (wire.Envelope{}).Verify(testPublicKey()); !errors.Is(err, wire.ErrSignature) {
		t.Errorf("the zero envelope verifies with error %v", err)
	}
}
