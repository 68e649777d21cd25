package keys

import (
	"bytes"
	"crypto/ed25519"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// The keys in testdata were made for these tests with `openssl genpkey
// -algorithm ed25519` (and x25519); opensslPublic is what `openssl pkey -pubout`
// said of the first.
const opensslPublic = "0/19yYovIbfEtn2YwRrPBOh+9UpbARe9oaiIGFJ7c+Q="

func TestOpenSSLKey(t *testing.T) {
	key, err := Private("testdata/openssl.key")
	if err != nil {
		t.Fatal(err)
	}
	if got := Format(Public(key)); got != opensslPublic {
		t.Errorf("public key %s, want %s", got, opensslPublic)
	}
	path := filepath.Join(t.TempDir(), "copy.key")
	if err := Save(path, key); err != nil {
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
	made, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	read, err := Private(path)
	if err != nil {
		t.Fatal(err)
	}
	if !read.Equal(made) {
		t.Error("the file holds another key than the one that was made")
	}
	if info, err := os.Stat(path); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, error %v; want 0600", info.Mode(), err)
	}
	if _, err := Create(path); err == nil || !strings.Contains(err.Error(), "exists already") {
		t.Errorf("error %v, want a refusal to replace the file", err)
	}
	if again, err := Private(path); err != nil || !again.Equal(made) {
		t.Errorf("the key was replaced, error %v", err)
	}
}

func TestPrivateRefuses(t *testing.T) {
	public := filepath.Join(t.TempDir(), "public.pem")
	if err := os.WriteFile(public, []byte("-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA\n-----END PUBLIC KEY-----\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	broken := filepath.Join(t.TempDir(), "broken.pem")
	if err := os.WriteFile(broken, []byte("-----BEGIN PRIVATE KEY-----\nMC4C\n-----END PRIVATE KEY-----\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"testdata/none.key":   "no such file or directory; make a key with `key new`",
		"keys_test.go":        "keys_test.go: no PEM block \"PRIVATE KEY\"",
		public:                "no PEM block \"PRIVATE KEY\"",
		broken:                "broken.pem: asn1:",
		"testdata/x25519.key": "x25519.key: the key is a *ecdh.PrivateKey, want Ed25519",
	} {
		if _, err := Private(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q in it", path, err, want)
		}
	}
}

func TestParse(t *testing.T) {
	for _, text := range []string{opensslPublic, " " + opensslPublic + "\n"} {
		key, err := Parse(text)
		if err != nil || Format(key) != opensslPublic {
			t.Errorf("%q gives %s, error %v", text, Format(key), err)
		}
	}
	for _, text := range []string{"", "AAAA", opensslPublic[:40], opensslPublic + opensslPublic, "ssh-ed25519 " + opensslPublic} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), "want 32 bytes in base64") {
			t.Errorf("%q: error %v", text, err)
		}
	}
}

func TestAgents(t *testing.T) {
	other := Format(make(ed25519.PublicKey, ed25519.PublicKeySize))
	path := filepath.Join(t.TempDir(), "agents.keys")
	load := func(text string) (int, error) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		all, err := Agents(path)
		return len(all), err
	}
	if n, err := load("# the roof\nroof-1 " + opensslPublic + "\n\n  cellar\t" + other + "  \r\n"); n != 2 || err != nil {
		t.Errorf("%d agents, error %v; want 2", n, err)
	}
	if n, err := load(""); n != 0 || err != nil {
		t.Errorf("%d agents, error %v; want none", n, err)
	}
	for _, tt := range []struct{ text, want string }{
		{"a " + other + "\nb\n", ":2: want an agent id and its public key in base64"},
		{"a " + other + "\n\nb " + other + " c\n", ":3: want an agent id and its public key"},
		{"a/b " + other + "\n", `:1: agent id "a/b"`},
		{"coordinator " + other + "\n", ":1: agent id \"coordinator\": this name is the coordinator's"},
		{"a AAAA\n", `:1: "AAAA" is not an Ed25519 public key`},
		{"a " + other + "\n# again\na " + opensslPublic + "\n", ":3: agent a is in the list twice"},
		{"a " + strings.Repeat("A", 1<<17) + "\n", "token too long"},
	} {
		if _, err := load(tt.text); err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%.60q: error %v\nwant %s and %s in it", tt.text, err, path, tt.want)
		}
	}
	if _, err := Agents(filepath.Join(t.TempDir(), "none")); err == nil || !strings.Contains(err.Error(), `write a line "ID KEY" for each agent`) {
		t.Errorf("error %v, want one that says what to write", err)
	}
}
