package settings_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/internal/keys"
)

// publicKey returns a valid public key. Each value of the parameter which gives a different key.
func publicKey(which byte) string {
	return keys.FormatPublic(bytes.Repeat([]byte{which}, ed25519.PublicKeySize))
}

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func writeKey(t *testing.T) (path string, key ed25519.PrivateKey) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "test.key")
	key, err := keys.CreateSigningKeyFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return path, key
}

// writeCertificate writes the certificate of a certificate authority and returns the path of the file.
func writeCertificate(t *testing.T) (path string) {
	t.Helper()
	_, key := writeKey(t)
	of := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(nil, of, of, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return writeFile(t, "ca.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
}

// agentFile returns a valid agentd.yaml.
func agentFile(t *testing.T) string {
	t.Helper()
	key, _ := writeKey(t)
	return "federation: air\nid: roof-1\nbroker:\n  url: tcp://localhost:1883\nidentity:\n  key_file: " + key +
		"\n  coordinator_key: " + publicKey(7) + "\ndata:\n  csv: rows.csv\n"
}

func coordinatorFile(t *testing.T) string {
	t.Helper()
	key, _ := writeKey(t)
	agents := writeFile(t, "agents.keys", "a "+publicKey(1)+"\nb "+publicKey(2)+"\n")
	return "federation: air\nidentity:\n  key_file: " + key + "\n  agents_file: " + agents +
		"\nround:\n  participants: 2\n  quorum: 1\n  gather:\n    minimum: 2\n" +
		"task:\n  name: air\n  features: [a, b]\n  target: y\n"
}

// leaves returns the keys of a settings struct that hold values instead of subkeys.
func leaves(t reflect.Type, prefix string) []string {
	var all []string
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Tag.Get("yaml") == "-" {
			continue
		}
		if f.Anonymous {
			all = append(all, leaves(f.Type, prefix)...)
			continue
		}
		name, typ := prefix+f.Tag.Get("yaml"), f.Type
		if typ.Kind() == reflect.Pointer {
			typ = typ.Elem()
		}
		if typ.Kind() == reflect.Struct {
			all = append(all, leaves(typ, name+".")...)
		} else {
			all = append(all, name)
		}
	}
	return all
}

// wantError checks that an error contains a text.
func wantError(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v\nwant %q in it", err, want)
	}
}
