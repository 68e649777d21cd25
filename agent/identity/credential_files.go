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

// The state folder contains a key and a certificate that replace the configured ones, because a service may not write
// to other folders. Each record contains the configured key or certificate that it replaces. The agent ignores the
// record when a different key or certificate is configured.

// deviceKeys contains the configured key and the next key of the device. The field core.Signer contains the key in use.
type deviceKeys struct {
	configured wire.SigningPublicKey
	// nextKey is a new key that the agent has requested and that the coordinator may already accept. It is nil if the
	// agent has no pending request for a key.
	nextKey ed25519.PrivateKey
}

// loadDeviceKeys sets core.Signer.Key to the saved key if it replaces the configured key, and to the configured key
// otherwise.
func (p *AgentIdentity) loadDeviceKeys() error {
	p.keys.configured, p.core.Signer.Key = wire.SigningPublicKeyOf(p.cfg.Key), p.cfg.Key
	return p.core.StateFolder.LoadFile(state.DeviceKeys, func(b []byte) error {
		if len(b) != 2*32 && len(b) != 3*32 {
			return fmt.Errorf("the content of the file has %d bytes instead of 64 or 96", len(b))
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

// save saves the key in use, and the next key if it is set. It may be called from any goroutine.
func (k *deviceKeys) save(folder state.Folder, inUse ed25519.PrivateKey) error {
	b := append(append([]byte(nil), k.configured[:]...), inUse.Seed()...)
	if k.nextKey != nil {
		b = append(b, k.nextKey.Seed()...)
	}
	return folder.SaveFile(state.DeviceKeys, b)
}

// LoadCertificate returns the certificate in the state folder that replaces the configured broker certificate. It
// returns the configured certificate if the file is missing or unusable.
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

// checkCertificateRecord validates the saved certificate and renames its file if it is unusable.
func checkCertificateRecord(folder state.Folder) error {
	return folder.LoadFile(state.Certificate, func(b []byte) error {
		_, err := parseCertificateRecord(b, tls.Certificate{Certificate: [][]byte{nil}})
		return err
	})
}

// parseCertificateRecord returns the certificate in a record, with the intermediate certificates of the configured
// certificate. It returns the configured certificate if the record replaces a different one.
func parseCertificateRecord(b []byte, configured tls.Certificate) (tls.Certificate, error) {
	const head = 32 + 32
	if len(b) < head {
		return configured, fmt.Errorf("the content of the file has %d bytes, but must have more than %d", len(b), head)
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

// saveCertificate saves a certificate and its key in one record, so that both are replaced atomically.
func saveCertificate(folder state.Folder, configured []byte, key *ecdsa.PrivateKey, leaf []byte) error {
	secret, err := key.Bytes()
	if err != nil {
		return err
	}
	sum := sha256.Sum256(configured)
	return folder.SaveFile(state.Certificate, append(append(sum[:], secret...), leaf...))
}
