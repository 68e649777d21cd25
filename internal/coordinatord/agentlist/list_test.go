package agentlist

import (
	"bytes"
	"crypto/ed25519"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/internal/keys"
)

func TestAgents(t *testing.T) {
	openssl := keys.FormatPublic(keyOf(1))
	other := keys.FormatPublic(bytes.Repeat([]byte{7}, ed25519.PublicKeySize))
	path := filepath.Join(t.TempDir(), "agents.keys")
	load := func(text string) (int, error) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return Count(path, path+".none")
	}
	if n, err := load("# the roof\nroof-1 " + openssl + "\n\n  cellar\t" + other + "  \r\n"); n != 2 ||
		err != nil {
		t.Errorf("%d agents, error %v; want 2", n, err)
	}
	if n, err := load(""); n != 0 || err != nil {
		t.Errorf("%d agents, error %v; want none", n, err)
	}
	for _, tt := range []struct{ text, want string }{
		{"a " + other + "\nb\n", ":2: invalid line: want an agent id and its public key in base64"},
		{"a " + other + "\n\nb " + other + " c\n", ":3: invalid line: want an agent id and its public key"},
		{"a/b " + other + "\n", `:1: agent id "a/b"`},
		{"coordinator " + other + "\n", ":1: agent id \"coordinator\" is reserved for the coordinator"},
		{"a AAAA\n", `:1: "AAAA" is not an Ed25519 public key`},
		{"a " + other + "\n# again\na " + openssl + "\n",
			":3: duplicate agent a, also in line 1: remove one"},
		{"a " + other + "\n\nb " + openssl + "\nc " + other + "\n",
			":4: agent c has the same key as agent a in line 1: each device requires its own key"},
		{"a " + keys.FormatPublic(append([]byte{1}, make([]byte, 31)...)) + "\n",
			"is a weak Ed25519 public key"},
		{"a " + strings.Repeat("A", 1<<17) + "\n", "token too long"},
	} {
		if _, err := load(tt.text); err == nil || !strings.Contains(err.Error(), tt.want) ||
			!strings.Contains(err.Error(), path) {
			t.Errorf("%.60q: error %v\nwant %s and %s in it", tt.text, err, path, tt.want)
		}
	}
	if _, err := Count(filepath.Join(t.TempDir(), "none"), path); err == nil ||
		!strings.Contains(err.Error(), `create the file with a line "ID KEY" for each agent`) {
		t.Errorf("error %v, want one that says what to write", err)
	}
}
