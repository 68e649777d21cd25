// Package keys reads and writes the key files of the daemons. A private key is an Ed25519 key as PKCS #8 in PEM, the
// format of `openssl genpkey -algorithm ed25519`. A public key is one line of base64.
package keys

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/fedmesh/fedmesh/store"
)

// CreateSigningKeyFile creates a new private key file that only its owner can read. It never replaces an existing file,
// because its key may be the identity of a device.
func CreateSigningKeyFile(path string) (ed25519.PrivateKey, error) {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s already exists: if the key in this file is no longer needed, remove the file first",
			path)
	}
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, err
	}
	return key, savePrivateKey(path, key)
}

func savePrivateKey(path string, key any) error {
	text, err := EncodePrivate(key)
	if err != nil {
		return err
	}
	return store.LocalDisk.WriteFileDurably(path, text, 0o600)
}

// EncodePrivate encodes a private key as PKCS #8 in PEM.
func EncodePrivate(key any) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), err
}

// ReadSigningKey reads a private key file. It returns an error if other users can read the file.
func ReadSigningKey(path string) (ed25519.PrivateKey, error) {
	return readPrivateKey[ed25519.PrivateKey](path, "Ed25519")
}

// ReadClientKey reads the P-256 private key of a client certificate from a file. It returns an error if other users can
// read the file.
func ReadClientKey(path string) (*ecdsa.PrivateKey, error) {
	return readPrivateKey[*ecdsa.PrivateKey](path, "ECDSA")
}

// CreateClientKeyFile creates a file with a new P-256 private key for a client certificate. CreateClientKeyFile never
// replaces an existing file. Only the owner can read the new file.
func CreateClientKeyFile(path string) (*ecdsa.PrivateKey, error) {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s already exists: if the key in this file is no longer needed, remove the file first",
			path)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	return key, savePrivateKey(path, key)
}

func readPrivateKey[K any](path, kind string) (none K, err error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return none, fmt.Errorf("%w; create a key with `key new`", err)
	}
	if err != nil {
		return none, err
	}
	block, _ := pem.Decode(b)
	if block == nil || block.Type != "PRIVATE KEY" {
		return none, fmt.Errorf("%s: no PEM block \"PRIVATE KEY\"; create a key with `key new`", path)
	}
	k, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return none, fmt.Errorf("%s: %w", path, err)
	}
	key, ok := k.(K)
	if !ok {
		return none, fmt.Errorf("%s: the key is a %T, want %s", path, k, kind)
	}
	return key, CheckPermissions(path)
}

// CheckPermissions returns an error if every user can read or write a private key file. Read access for the group is
// allowed, because a service may run as a group member. Modes are not checked on Windows or for systemd credentials.
func CheckPermissions(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	mode := info.Mode().Perm()
	if dir := os.Getenv("CREDENTIALS_DIRECTORY"); mode&0o007 == 0 || runtime.GOOS == "windows" || dir != "" &&
		filepath.Dir(path) == filepath.Clean(dir) {
		return nil
	}
	return fmt.Errorf("%s can be read or written by all users (mode %04o): run chmod 600 %s; if other users may have "+
		"read the key, create a new key", path, mode, path)
}

// Public returns the public key that belongs to a private key.
func Public(key ed25519.PrivateKey) ed25519.PublicKey {
	return ed25519.PublicKey(key[ed25519.SeedSize:])
}

// FormatPublic returns a public key as base64 text.
func FormatPublic(key ed25519.PublicKey) string { return base64.StdEncoding.EncodeToString(key) }

// ParsePublic decodes a public key from base64 text. ParsePublic rejects weak keys.
func ParsePublic(s string) (ed25519.PublicKey, error) {
	b, err := base64.StdEncoding.DecodeString(strings.TrimSpace(s))
	if err != nil || len(b) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("%q is not an Ed25519 public key: want %d bytes in base64, as printed by `key show`", s,
			ed25519.PublicKeySize)
	}
	if isWeakKey(b) {
		return nil, fmt.Errorf("%q is a weak Ed25519 public key, or it is not in canonical form: use a key that `key "+
			"new` has created", s)
	}
	return b, nil
}

// smallOrderPoints contains the y coordinates (little-endian hex) of the Ed25519 points P with 8P = 0. With such a
// public key, anyone can make signatures without a private key, and one signature is valid for many messages.
var smallOrderPoints = [5]string{
	"0000000000000000000000000000000000000000000000000000000000000000",
	"0100000000000000000000000000000000000000000000000000000000000000",
	"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
	"c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
}

// isWeakKey reports whether a key has small order or is not canonical (y ≥ 2²⁵⁵ − 19). A non-canonical key is a second
// encoding of the same point.
func isWeakKey(key ed25519.PublicKey) bool {
	y := [ed25519.PublicKeySize]byte(key)
	y[31] &= 0x7f // clear the bit that holds the sign of x
	beyond := y[0] >= 0xed && y[31] == 0x7f && !slices.ContainsFunc(y[1:31], func(b byte) bool { return b != 0xff })
	var digits [2 * len(y)]byte
	hex.Encode(digits[:], y[:])
	return beyond || slices.Contains(smallOrderPoints[:], string(digits[:]))
}
