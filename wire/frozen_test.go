package wire_test

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/wire"
)

// TestFrozen checks that version 2 of the protocol has not changed. The file testdata/version2.sha256 contains the
// SHA-256 of each golden file and is never rewritten. A new golden file adds a line; existing lines must not change.
func TestFrozen(t *testing.T) {
	if wire.ProtocolVersion != 2 {
		t.Fatalf("version %d has golden files of its own: those of version 2 stay, and this build still reads them",
			wire.ProtocolVersion)
	}
	list, err := os.ReadFile(filepath.Join("testdata", "version2.sha256"))
	if err != nil {
		t.Fatal(err)
	}
	frozen := map[string]string{}
	for line := range strings.Lines(string(list)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		frozen[name] = sum
	}
	files, err := filepath.Glob(filepath.Join("testdata", "golden", "*.hex"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		name, sum := filepath.Base(path), sha256.Sum256(data)
		switch want, is := frozen[name]; {
		case !is:
			t.Errorf("%s is new: add the line\n%x  %s", name, sum, name)
		case want != hex.EncodeToString(sum[:]):
			t.Errorf("%s has changed, but version 2 is frozen: an extension is a section or an enum value, all else "+
				"is version 3 (docs/PROTOCOL.md, section 11)", name)
		}
		delete(frozen, name)
	}
	for name := range frozen {
		t.Errorf("%s is gone, but version 2 is frozen", name)
	}
}
