// Package keys reads and writes the key files of the daemons: an Ed25519
// private key as PKCS #8 in PEM (what `openssl genpkey -algorithm ed25519`
// writes), a public key as one line of base64, and the list of the agents'
// public keys, one `ID KEY` a line.
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

// CreateSigningKeyFile makes a new private key file, readable by its owner only. An existing
// file is never replaced: its key may be the identity of a device.
func CreateSigningKeyFile(path string) (ed25519.PrivateKey, error) {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s exists already; remove it first if its key is really no longer needed", path)
	}
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, err
	}
	return key, savePrivateKey(path, key)
}

// savePrivateKey writes a private key file.
func savePrivateKey(path string, key any) error {
	text, err := EncodePrivate(key)
	if err != nil {
		return err
	}
	return store.LocalDisk.WriteFileDurably(path, text, 0o600)
}

// EncodePrivate returns the content of the file of a private key.
func EncodePrivate(key any) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), err
}

// ReadSigningKey reads a private key file, which no other users may read.
func ReadSigningKey(path string) (ed25519.PrivateKey, error) {
	return readPrivateKey[ed25519.PrivateKey](path, "Ed25519")
}

// ReadClientKey reads the private key of a certificate, of the curve P-256, as Private does.
func ReadClientKey(path string) (*ecdsa.PrivateKey, error) {
	return readPrivateKey[*ecdsa.PrivateKey](path, "ECDSA")
}

// CreateClientKeyFile is CreateSigningKeyFile for the private key of a certificate, of the curve P-256.
func CreateClientKeyFile(path string) (*ecdsa.PrivateKey, error) {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s exists already; remove it first if its key is really no longer needed", path)
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
		return none, fmt.Errorf("%w; make a key with `key new`", err)
	}
	if err != nil {
		return none, err
	}
	block, _ := pem.Decode(b)
	if block == nil || block.Type != "PRIVATE KEY" {
		return none, fmt.Errorf("%s: no PEM block \"PRIVATE KEY\"; make a key with `key new`", path)
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

// CheckPermissions refuses the file of a private key that all users of the machine may read or write. Its group may
// read it: a file of root's is given so to the user of a service. On Windows the mode means nothing, and systemd
// protects its credentials.
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
	return fmt.Errorf("%s is open to all users (mode %04o), want a private key that only its user reads: "+
		"chmod 600 %s; "+
		"if others may have read it, make a new key", path, mode, path)
}

// Public returns the public part of a private key.
func Public(key ed25519.PrivateKey) ed25519.PublicKey {
	return ed25519.PublicKey(key[ed25519.SeedSize:])
}

// FormatPublic returns a public key in base64.
func FormatPublic(key ed25519.PublicKey) string { return base64.StdEncoding.EncodeToString(key) }

// ParsePublic reads a public key in base64.
func ParsePublic(s string) (ed25519.PublicKey, error) {
	b, err := base64.StdEncoding.DecodeString(strings.TrimSpace(s))
	if err != nil || len(b) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("%q is not an Ed25519 public key: want %d bytes in base64, as `key show` prints them", s,
			ed25519.PublicKeySize)
	}
	if isWeakKey(b) {
		return nil, fmt.Errorf("%q is a public key that anybody can sign for, or another spelling of one: want a key "+
			"that `key new` has made", s)
	}
	return b, nil
}

// smallOrderPoints are the y coordinates, little-endian, of the points P of Ed25519 with 8P = 0: whoever names such a
// key as his can make signatures for it without a private key, that count for many messages at once.
var smallOrderPoints = [5]string{
	"0000000000000000000000000000000000000000000000000000000000000000",
	"0100000000000000000000000000000000000000000000000000000000000000",
	"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
	"c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
}

// isWeakKey tells a key of small order, or one whose y is not below 2²⁵⁵ − 19: two keys would be one point.
func isWeakKey(key ed25519.PublicKey) bool {
	y := [ed25519.PublicKeySize]byte(key)
	y[31] &= 0x7f // the sign of x
	beyond := y[0] >= 0xed && y[31] == 0x7f && !slices.ContainsFunc(y[1:31], func(b byte) bool { return b != 0xff })
	var digits [2 * len(y)]byte
	hex.Encode(digits[:], y[:])
	return beyond || slices.Contains(smallOrderPoints[:], string(digits[:]))
}
