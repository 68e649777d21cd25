package setup

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/coordinator/enrol"
	"github.com/fedmesh/fedmesh/internal/keys"
	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/mqtt/broker/acl"
	"github.com/fedmesh/fedmesh/packaging/mosquitto"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// joinPort is the default port for joining devices, on the broker's machine.
const joinPort = "8884"

// usesTokens reports whether devices join with tokens. They do if the broker uses TLS. A broker without TLS is only for
// tests and needs no certificates.
func (a *Answers) usesTokens() bool {
	u, err := url.Parse(a.BrokerURL)
	return err == nil && slices.Contains([]string{"tls", "ssl", "mqtts", "wss"}, u.Scheme)
}

// brokerHost returns the broker's host name or address.
func (a *Answers) brokerHost() string {
	u, err := url.Parse(a.BrokerURL)
	if err != nil {
		return "" // unreachable: Validate has parsed the URL
	}
	return u.Hostname()
}

// mosquittoConf returns Mosquitto's configuration with the port of the broker's URL. With the scheme wss it keeps the
// default port, because that listener speaks MQTT without WebSocket.
func (a *Answers) mosquittoConf() []byte {
	u, err := url.Parse(a.BrokerURL)
	if err != nil || u.Port() == "" || u.Scheme == "wss" {
		return mosquitto.Conf
	}
	return bytes.Replace(mosquitto.Conf, []byte("\nlistener 8883\n"), []byte("\nlistener "+u.Port()+"\n"), 1)
}

// joinURL returns the URL at which devices join.
func (a *Answers) joinURL() string {
	if a.CoordinatorURL != "" {
		return a.CoordinatorURL
	}
	return (&url.URL{Scheme: "https", Host: net.JoinHostPort(a.brokerHost(), joinPort)}).String()
}

// enrolmentConfigValues returns the values in coordinator.yaml that configure enrolment, by key.
func (a *Answers) enrolmentConfigValues(dir, state string) map[string]any {
	port := joinPort
	if u, err := url.Parse(a.joinURL()); err == nil && u.Port() != "" {
		port = u.Port()
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	return map[string]any{
		"broker.ca_file": at(caCertFile), "broker.cert_file": at(clientCertFile), "broker.key_file": at(clientKeyFile),
		"enrol.listen": ":" + port, "enrol.url": a.joinURL(), "enrol.root_file": at(rootDocumentFile),
		"enrol.ca_file": at(caCertFile), "enrol.ca_key_file": at(caKeyFile), "enrol.devices_file": at("agentd.yaml"),
		"enrol.acl": filepath.Join(state, "acl"),
	}
}

// The names of the key and certificate files.
const (
	rootKeyFile, rootDocumentFile = "root.key", "root"
	caCertFile, caKeyFile         = "ca.crt", "ca.key"
	clientCertFile, clientKeyFile = "client.crt", "client.key"
)

// createTrustFiles creates the root document, the certificate authority, the coordinator's certificate and the files
// for Mosquitto. Existing files are kept.
func (f *FederationFiles) createTrustFiles(dir string, a *Answers, key ed25519.PrivateKey) error {
	at := func(names ...string) string { return filepath.Join(append([]string{dir}, names...)...) }
	f.RootKey, f.MosquittoDir = at(rootKeyFile), at("mosquitto")
	now := time.Now()
	authority, err := loadOrCreateAuthority(at(caCertFile), at(caKeyFile), a.FederationName, now)
	if err != nil {
		return err
	}
	if err := f.createRootDocument(at(rootDocumentFile), a, authority, key); err != nil {
		return err
	}
	topics, err := mqtt.NewTopics("", a.FederationName)
	if err != nil {
		return err
	}
	own := topics.ClientID(wire.CoordinatorID)
	err = createKeyAndCertificate(at(clientCertFile), at(clientKeyFile), func(k *ecdsa.PublicKey) ([]byte, error) {
		return authority.IssueClientCertificate(own, k, now, enrol.Lifetime)
	})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(at("mosquitto", "certs"), 0o755); err != nil {
		return err
	}
	if err := os.MkdirAll(at("mosquitto", "mosquitto.service.d"), 0o755); err != nil {
		return err
	}
	err = createKeyAndCertificate(at("mosquitto", "certs", "broker.crt"), at("mosquitto", "certs", "broker.key"),
		func(k *ecdsa.PublicKey) ([]byte, error) {
			return authority.IssueServerCertificate(a.brokerHost(), k, now)
		})
	if err != nil {
		return err
	}
	table, err := acl.NewRuleTable("")
	if err != nil {
		return err
	}
	rules, err := table.MosquittoACLFile(wire.FederationName(a.FederationName), nil, false)
	if err != nil {
		return err
	}
	d := store.LocalDisk
	return errors.Join(
		d.WriteFileDurably(at("mosquitto", "certs", caCertFile), pemOf(authority.Certificate.Raw), 0o666),
		d.WriteFileDurably(at("mosquitto", "mosquitto.conf"), a.mosquittoConf(), 0o666),
		d.WriteFileDurably(at("mosquitto", "acl"), rules, 0o666),
		d.WriteFileDurably(at("mosquitto", "fedmesh.nft"), mosquitto.Firewall, 0o666),
		d.WriteFileDurably(at("mosquitto", "mosquitto.service.d", "fedmesh.conf"), mosquitto.DropIn, 0o666))
}

// createRootDocument creates the root key and the root document. If the document already exists, it only checks that
// the document belongs to this federation.
func (f *FederationFiles) createRootDocument(path string, a *Answers, authority *enrol.CertificateAuthority,
	key ed25519.PrivateKey) error {
	d, err := settings.ReadRootDocument(path, a.FederationName)
	if err == nil {
		cfg := enrol.Config{EncodedRootDocument: d.Bytes(), CoordinatorKey: key, CertificateAuthority: authority}
		if err := cfg.CheckKeysMatchRoot(); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	root, err := keys.ReadSigningKey(f.RootKey)
	if errors.Is(err, fs.ErrNotExist) {
		root, err = keys.CreateSigningKeyFile(f.RootKey)
	}
	if err != nil {
		return err
	}
	d = wire.RootDocument{Federation: wire.FederationName(a.FederationName), Version: wire.FirstRootVersion,
		CoordinatorKey: wire.SigningPublicKeyOf(key), CACertificateHash: authority.CertificateDigest()}
	d.Sign(root, nil)
	return store.LocalDisk.WriteFileDurably(path, d.Bytes(), 0o666)
}

// loadOrCreateAuthority reads the certificate authority and creates it if it does not exist. The key is created first,
// because a certificate without its key is useless.
func loadOrCreateAuthority(certificate, key, name string, now time.Time) (*enrol.CertificateAuthority, error) {
	secret, err := keys.ReadClientKey(key)
	if errors.Is(err, fs.ErrNotExist) {
		secret, err = keys.CreateClientKeyFile(key)
	}
	if err != nil {
		return nil, err
	}
	p, err := os.ReadFile(certificate)
	if errors.Is(err, fs.ErrNotExist) {
		a, err := enrol.NewCertificateAuthority(name, secret, now)
		if err != nil {
			return nil, err
		}
		return a, store.LocalDisk.WriteFileDurably(certificate, pemOf(a.Certificate.Raw), 0o666)
	}
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(p)
	if block == nil {
		return nil, fmt.Errorf("%s contains no certificate in PEM format", certificate)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	return &enrol.CertificateAuthority{Certificate: c, Key: secret}, err
}

// createKeyAndCertificate creates a key and its certificate unless they exist.
func createKeyAndCertificate(certificate, key string, sign func(*ecdsa.PublicKey) ([]byte, error)) error {
	secret, err := keys.ReadClientKey(key)
	if errors.Is(err, fs.ErrNotExist) {
		secret, err = keys.CreateClientKeyFile(key)
	}
	if err != nil {
		return err
	}
	if _, err := os.Lstat(certificate); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	der, err := sign(&secret.PublicKey)
	if err != nil {
		return err
	}
	return store.LocalDisk.WriteFileDurably(certificate, pemOf(der), 0o666)
}

func pemOf(der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}) }
