package agentlist

import (
	"crypto/ed25519"
	"os"
	"path/filepath"
	"testing"

	"github.com/fedmesh/fedmesh/internal/keys"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// TestEditAgents checks that devices are added and removed, and that the text around them is kept.
func TestEditAgents(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agents.keys")
	key := func(n byte) ed25519.PublicKey {
		return keys.Public(ed25519.NewKeyFromSeed(append(make([]byte, 31), n)))
	}
	edit := func(remove []wire.AgentID, id wire.AgentID, k ed25519.PublicKey, want string) {
		t.Helper()
		if err := EditListFile(store.LocalDisk, path, remove, id, k); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("the list is %q, %v; want %q", got, err, want)
		}
	}
	a, b := "a "+keys.FormatPublic(key(1))+"\n", "b "+keys.FormatPublic(key(2))+"\n"
	if l, err := LookupAgentAndKey(path, "a", key(1)); err != nil || l.AgentKey != nil || l.KeyHolder != "" {
		t.Errorf("in no list: %+v, %v", l, err)
	}
	edit(nil, "a", key(1), a)
	// the last line has no line end
	if err := os.WriteFile(path, []byte("# hall 2: a line\n\n"+a[:len(a)-1]), 0o640); err != nil {
		t.Fatal(err)
	}
	edit(nil, "b", key(2), "# hall 2: a line\n\n"+a+b)
	if l, err := LookupAgentAndKey(path, "b", key(1)); err != nil || !l.AgentKey.Equal(key(2)) || l.KeyHolder != "a" {
		t.Errorf("listed: %+v, %v", l, err)
	}
	edit([]wire.AgentID{"a", "hall"}, "c", key(1), "# hall 2: a line\n\n"+b+"c "+keys.FormatPublic(key(1))+"\n")
	edit([]wire.AgentID{"c"}, "", nil, "# hall 2: a line\n\n"+b)
}
