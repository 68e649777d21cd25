package agent

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"

	"github.com/fedmesh/fedmesh/agent/state"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// The state folder has the key and the certificate that came in the place of the configured ones: a service may write
// nowhere else. Each record names the configured one that it has followed: one that a person puts there begins anew.

// deviceKeyState is the device's keys besides the one that it uses.
type deviceKeyState struct {
	configured wire.SigningPublicKey
	// next was asked for, and may be in the coordinator's list already; nil if no other key was.
	next ed25519.PrivateKey
}

// loadKey has the newest key that the coordinator has taken be the configuration's.
func loadKey(c *Config) (i deviceKeyState, err error) {
	i.configured = wire.SigningPublicKeyOf(c.Key)
	err = c.state().Load(state.DeviceKeys, func(b []byte) error {
		if len(b) != 2*32 && len(b) != 3*32 {
			return fmt.Errorf("%d bytes, want 64 or 96", len(b))
		}
		if wire.SigningPublicKey(b[:32]) != i.configured {
			return nil
		}
		c.Key = ed25519.NewKeyFromSeed(b[32:64])
		if len(b) == 3*32 {
			i.next = ed25519.NewKeyFromSeed(b[64:])
		}
		return nil
	})
	return i, err
}

// save keeps the key that is used, and the next one if there is one.
func (i *deviceKeyState) save(c *Config, key ed25519.PrivateKey) error {
	b := append(append([]byte(nil), i.configured[:]...), key.Seed()...)
	if i.next != nil {
		b = append(b, i.next.Seed()...)
	}
	return c.state().Save(state.DeviceKeys, b)
}

// LoadCertificate returns the certificate for the broker that came in the place of a configured one, from a state
// folder; the configured one if none did.
func LoadCertificate(disk store.Disk, dir string, configured tls.Certificate) (tls.Certificate, error) {
	b, err := state.Read(disk, dir, state.Certificate)
	if errors.Is(err, store.ErrNoRecord) {
		return configured, nil
	}
	if err != nil {
		return configured, err
	}
	return parseCertificate(b, configured)
}

// checkCertificateRecord sets the certificate's record aside if it cannot be read.
func checkCertificateRecord(c *Config) error {
	return c.state().Load(state.Certificate, func(b []byte) error {
		_, err := parseCertificate(b, tls.Certificate{Certificate: [][]byte{nil}})
		return err
	})
}

func parseCertificate(b []byte, configured tls.Certificate) (tls.Certificate, error) {
	const head = 32 + 32
	if len(b) < head {
		return configured, fmt.Errorf("%d bytes, want more than %d", len(b), head)
	}
	key, err1 := ecdsa.ParseRawPrivateKey(elliptic.P256(), b[32:head])
	leaf, err2 := x509.ParseCertificate(b[head:])
	if err := errors.Join(err1, err2); err != nil {
		return configured, err
	}
	if sum := sha256.Sum256(configured.Certificate[0]); !bytes.Equal(sum[:], b[:32]) {
		return configured, nil
	}
	return tls.Certificate{Certificate: append([][]byte{leaf.Raw}, configured.Certificate[1:]...), PrivateKey: key,
		Leaf: leaf}, nil
}

// saveCertificate keeps a certificate that came in the place of a configured one.
func saveCertificate(c *Config, configured []byte, key *ecdsa.PrivateKey, leaf []byte) error {
	secret, err := key.Bytes()
	if err != nil {
		return err
	}
	sum := sha256.Sum256(configured)
	return c.state().Save(state.Certificate, append(append(sum[:], secret...), leaf...))
}
