package history

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"
)

var update = flag.Bool("update", false, "write the files that the Python package is tested with")

// TestPython checks the golden files of packaging/python: history lines and their CSV form.
func TestPython(t *testing.T) {
	const folder = "../../../packaging/python/tests/golden"
	var lines, table bytes.Buffer
	sink, err := NewCSVSink(&table)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range rounds() {
		if err := json.NewEncoder(&lines).Encode(e); err != nil {
			t.Fatal(err)
		}
		if err := sink.WriteRound(&e); err != nil {
			t.Fatal(err)
		}
	}
	if err := sink.Close(); err != nil {
		t.Fatal(err)
	}
	for name, now := range map[string][]byte{"history.jsonl": lines.Bytes(), "rounds.csv": table.Bytes()} {
		path := filepath.Join(folder, name)
		if *update {
			if err := os.WriteFile(path, now, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if golden, err := os.ReadFile(path); err != nil || !bytes.Equal(golden, now) {
			t.Errorf("%s (error %v) is not what we write: see what has changed, then "+
				"go test ./internal/coordinatord/history -run TestPython -args -update", path, err)
		}
	}
}
