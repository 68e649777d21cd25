package keys

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// opensslPublic is the public key that belongs to the first private key in testdata, as printed by `openssl pkey
// -pubout`. The private keys in testdata were created for these tests with `openssl genpkey -algorithm ed25519` and
// `openssl genpkey -algorithm x25519`.
const opensslPublic = "0/19yYovIbfEtn2YwRrPBOh+9UpbARe9oaiIGFJ7c+Q="

func TestOpenSSLKey(t *testing.T) {
	key, err := ReadSigningKey(closed(t, "testdata/openssl.key"))
	if err != nil {
		t.Fatal(err)
	}
	if got := FormatPublic(Public(key)); got != opensslPublic {
		t.Errorf("public key %s, want %s", got, opensslPublic)
	}
	path := filepath.Join(t.TempDir(), "copy.key")
	if err := savePrivateKey(path, key); err != nil {
		t.Fatal(err)
	}
	ours, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := os.ReadFile("testdata/openssl.key")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(ours, theirs) {
		t.Errorf("saved as\n%swant, as openssl wrote it,\n%s", ours, theirs)
	}
}

func TestCreate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.key")
	made, err := CreateSigningKeyFile(path)
	if err != nil {
		t.Fatal(err)
	}
	read, err := ReadSigningKey(path)
	if err != nil {
		t.Fatal(err)
	}
	if !read.Equal(made) {
		t.Error("the file holds another key than the one that was made")
	}
	if info, err := os.Stat(path); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, error %v; want 0600", info.Mode(), err)
	}
	if _, err := CreateSigningKeyFile(path); err == nil || !strings.Contains(err.Error(), "already exists") {
		t.Errorf("error %v, want a refusal to replace the file", err)
	}
	if again, err := ReadSigningKey(path); err != nil || !again.Equal(made) {
		t.Errorf("the key was replaced, error %v", err)
	}
}

func TestPrivateRefuses(t *testing.T) {
	public := filepath.Join(t.TempDir(), "public.pem")
	if err := os.WriteFile(public, []byte("-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA\n-----END PUBLIC KEY-----\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	broken := filepath.Join(t.TempDir(), "broken.pem")
	if err := os.WriteFile(broken, []byte("-----BEGIN PRIVATE KEY-----\nMC4C\n-----END PRIVATE KEY-----\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"testdata/none.key":              "no such file or directory; create a key with `key new`",
		"keys_test.go":                   "keys_test.go: no PEM block \"PRIVATE KEY\"",
		public:                           "no PEM block \"PRIVATE KEY\"",
		broken:                           "broken.pem: asn1:",
		closed(t, "testdata/x25519.key"): "x25519.key: the key is a *ecdh.PrivateKey, want Ed25519",
	} {
		if _, err := ReadSigningKey(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q in it", path, err, want)
		}
	}
}

// closed copies a key file to a path where only the present user can read it. The copy is necessary, because git does
// not preserve file modes.
func closed(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	copied := filepath.Join(t.TempDir(), filepath.Base(path))
	if err == nil {
		err = os.WriteFile(copied, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return copied
}

// TestPrivateIsClosed checks that a key file is rejected if all users can read or write it, and that the error contains
// a remedy. The file's group and systemd may read the file.
func TestPrivateIsClosed(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("modes mean nothing")
	}
	path := closed(t, "testdata/openssl.key")
	for mode, ok := range map[os.FileMode]bool{0o600: true, 0o400: true, 0o640: true, 0o644: false, 0o604: false,
		0o602: false, 0o666: false} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		_, err := ReadSigningKey(path)
		if want := fmt.Sprintf("%s can be read or written by all users (mode %04o): run chmod 600 %s", path, mode,
			path); ok && err != nil ||
			!ok && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("mode %04o: error %v", mode, err)
		}
	}
	t.Setenv("CREDENTIALS_DIRECTORY", filepath.Dir(path)+"/")
	if err := os.Chmod(path, 0o444); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadSigningKey(path); err != nil {
		t.Errorf("a credential of systemd: %v", err)
	}
}

// Constants of the curve: ed25519P is the prime of the field, and ed25519D is the coefficient d.
var (
	ed25519P = new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 255), big.NewInt(19))
	ed25519D = func() *big.Int {
		d := new(big.Int).ModInverse(big.NewInt(121666), ed25519P)
		return d.Mod(d.Mul(d, big.NewInt(-121665)), ed25519P)
	}()
)

// pointOf returns an x coordinate of the points with the given y coordinate. It returns nil if the curve has no such
// point.
func pointOf(y *big.Int) (x *big.Int) {
	yy := new(big.Int).Mul(y, y)
	u := new(big.Int).Sub(yy, big.NewInt(1))
	v := new(big.Int).Add(new(big.Int).Mul(ed25519D, yy), big.NewInt(1))
	xx := u.Mod(u.Mul(u, v.ModInverse(v, ed25519P)), ed25519P)
	return new(big.Int).ModSqrt(xx, ed25519P)
}

// doubled returns P + P on the curve −x² + y² = 1 + d x² y².
func doubled(x, y *big.Int) (*big.Int, *big.Int) {
	mod := func(z *big.Int) *big.Int { return z.Mod(z, ed25519P) }
	xx, yy := mod(new(big.Int).Mul(x, x)), mod(new(big.Int).Mul(y, y))
	dxy := mod(new(big.Int).Mul(ed25519D, new(big.Int).Mul(xx, yy)))
	one := big.NewInt(1)
	x2 := mod(new(big.Int).Mul(big.NewInt(2), new(big.Int).Mul(x, y)))
	x2 = mod(x2.Mul(x2, new(big.Int).ModInverse(new(big.Int).Add(one, dxy), ed25519P)))
	y2 := mod(new(big.Int).Add(xx, yy))
	y2 = mod(y2.Mul(y2, new(big.Int).ModInverse(mod(new(big.Int).Sub(one, dxy)), ed25519P)))
	return x2, y2
}

// TestWeakKeys derives the points of small order and compares them with smallOrderPoints. L is the order of the large
// subgroup, so the multiple L·P of any point P has small order. Enough random points P give all points of small order.
func TestWeakKeys(t *testing.T) {
	add := func(x1, y1, x2, y2 *big.Int) (*big.Int, *big.Int) {
		mul := func(a ...*big.Int) *big.Int {
			z := big.NewInt(1)
			for _, f := range a {
				z.Mod(z.Mul(z, f), ed25519P)
			}
			return z
		}
		dxy := mul(ed25519D, x1, x2, y1, y2)
		x := new(big.Int).Add(mul(x1, y2), mul(y1, x2))
		y := new(big.Int).Add(mul(y1, y2), mul(x1, x2))
		below := func(sign int64) *big.Int {
			z := new(big.Int).Add(big.NewInt(1), new(big.Int).Mul(big.NewInt(sign), dxy))
			return z.ModInverse(z.Mod(z, ed25519P), ed25519P)
		}
		return mul(x, below(1)), mul(y, below(-1))
	}
	order, _ := new(big.Int).SetString("27742317777372353535851937790883648493", 10)
	order.Add(order, new(big.Int).Lsh(big.NewInt(1), 252))
	found := map[string]bool{}
	for y := int64(2); y < 80; y++ {
		py := big.NewInt(y)
		px := pointOf(py)
		if px == nil {
			continue
		}
		qx, qy := big.NewInt(0), big.NewInt(1)
		for i := order.BitLen() - 1; i >= 0; i-- {
			qx, qy = doubled(qx, qy)
			if order.Bit(i) == 1 {
				qx, qy = add(qx, qy, px, py)
			}
		}
		found[encoded(qy, 0)] = true
	}
	if len(found) != len(smallOrderPoints) {
		t.Errorf("%d small y found, the table has %d", len(found), len(smallOrderPoints))
	}
	for _, y := range smallOrderPoints {
		b, err := hex.DecodeString(y)
		if err != nil || !found[string(b)] {
			t.Errorf("%s is in the table and of no small order", y)
		}
	}
	for y := range found {
		for _, sign := range []byte{0, 0x80} {
			if _, err := ParsePublic(base64.StdEncoding.EncodeToString(append([]byte(y)[:31:31],
				y[31]|sign))); err == nil ||
				!strings.Contains(err.Error(), "weak Ed25519 public key") {
				t.Errorf("%x with sign %x: error %v", y, sign, err)
			}
		}
	}
	for k := range int64(19) { // the numbers from p to 2²⁵⁵ − 1 are second encodings of 0 to 18
		if beyond := encoded(new(big.Int).Add(ed25519P, big.NewInt(k)), 0x80); !isWeakKey([]byte(beyond)) {
			t.Errorf("p + %d is taken", k)
		}
	}
	for range 100 {
		if key, _, err := ed25519.GenerateKey(nil); err != nil || isWeakKey(key) {
			t.Errorf("%x is called weak, error %v", key, err)
		}
	}
}

// encoded returns a point's y in little-endian bytes, with the sign bit of x.
func encoded(y *big.Int, sign byte) string {
	b := y.FillBytes(make([]byte, 32))
	slices.Reverse(b)
	b[31] |= sign
	return string(b)
}

func TestParse(t *testing.T) {
	for _, text := range []string{opensslPublic, " " + opensslPublic + "\n"} {
		key, err := ParsePublic(text)
		if err != nil || FormatPublic(key) != opensslPublic {
			t.Errorf("%q gives %s, error %v", text, FormatPublic(key), err)
		}
	}
	for _, text := range []string{"", "AAAA", opensslPublic[:40], opensslPublic + opensslPublic,
		"ssh-ed25519 " + opensslPublic} {
		if _, err := ParsePublic(text); err == nil || !strings.Contains(err.Error(), "want 32 bytes in base64") {
			t.Errorf("%q: error %v", text, err)
		}
	}
}
