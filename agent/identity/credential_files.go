package identity

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

// The state folder has the key and the certificate that replace the configured ones, since a service may write nowhere
// else. Each record names the configured key or certificate that it replaces. If a person configures another one, the
// record is not used.

// deviceKeys are the keys of the device, apart from the key in use.
type deviceKeys struct {
	configured wire.SigningPublicKey
	// nextKey is the key that the agent has requested, which may already be in the coordinator's list. It is nil if no
	// other key was requested.
	nextKey ed25519.PrivateKey
}

// loadDeviceKeys sets core.Signer.Key to the saved key that replaces the configured one, if there is one.
func (p *AgentIdentity) loadDeviceKeys() error {
	p.keys.configured, p.core.Signer.Key = wire.SigningPublicKeyOf(p.cfg.Key), p.cfg.Key
	return p.core.StateFolder.LoadFile(state.DeviceKeys, func(b []byte) error {
		if len(b) != 2*32 && len(b) != 3*32 {
			return fmt.Errorf("%d bytes, want 64 or 96", len(b))
		}
		if wire.SigningPublicKey(b[:32]) != p.keys.configured {
			return nil
		}
		p.core.Signer.Key = ed25519.NewKeyFromSeed(b[32:64])
		if len(b) == 3*32 {
			p.keys.nextKey = ed25519.NewKeyFromSeed(b[64:])
		}
		return nil
	})
}

// save saves the key in use, and the next one if there is one. It is called from any goroutine.
func (k *deviceKeys) save(folder state.Folder, inUse ed25519.PrivateKey) error {
	b := append(append([]byte(nil), k.configured[:]...), inUse.Seed()...)
	if k.nextKey != nil {
		b = append(b, k.nextKey.Seed()...)
	}
	return folder.SaveFile(state.DeviceKeys, b)
}

// LoadCertificate returns the certificate for the broker that replaces a configured one, from a state folder. It
// returns the configured one if the folder has no file, or one that cannot be used.
func LoadCertificate(disk store.Disk, dir string, configured tls.Certificate) (tls.Certificate, error) {
	b, err := disk.LoadStateFile(dir, state.Certificate)
	if errors.Is(err, store.ErrNoRecord) {
		return configured, nil
	}
	if err != nil {
		return configured, err
	}
	return parseCertificateRecord(b, configured)
}

// checkCertificateRecord sets the certificate's file aside if it cannot be used.
func checkCertificateRecord(folder state.Folder) error {
	return folder.LoadFile(state.Certificate, func(b []byte) error {
		_, err := parseCertificateRecord(b, tls.Certificate{Certificate: [][]byte{nil}})
		return err
	})
}

// parseCertificate returns the certificate of a record, with the intermediate certificates of the configured one. It
// returns the configured one if the record does not replace it.
func parseCertificateRecord(b []byte, configured tls.Certificate) (tls.Certificate, error) {
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

// saveCertificate saves a certificate that replaces a configured one, with its key in the same record. So both are
// replaced at once.
func saveCertificate(folder state.Folder, configured []byte, key *ecdsa.PrivateKey, leaf []byte) error {
	secret, err := key.Bytes()
	if err != nil {
		return err
	}
	sum := sha256.Sum256(configured)
	return folder.SaveFile(state.Certificate, append(append(sum[:], secret...), leaf...))
}
