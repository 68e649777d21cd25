package wire_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/wire"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// checkGolden compares p with testdata/golden/name.hex, which has 32 bytes per line.
func checkGolden(t *testing.T, name string, p []byte) {
	t.Helper()
	path := filepath.Join("testdata", "golden", name+".hex")
	if *update {
		var b strings.Builder
		for rest := p; len(rest) > 0; rest = rest[min(32, len(rest)):] {
			b.WriteString(hex.EncodeToString(rest[:min(32, len(rest))]) + "\n")
		}
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want := readGolden(t, name); !bytes.Equal(p, want) {
		t.Errorf("%s has changed: peers of version %d could not read it; got\n%x\nwant\n%x", path,
			wire.ProtocolVersion, p,
			want)
	}
}

func readGolden(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "golden", name+".hex"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := hex.DecodeString(strings.Join(strings.Fields(string(text)), ""))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return p
}

func TestGolden(t *testing.T) {
	for _, g := range goldens() {
		f := formNamed(t, g.form)
		checkGolden(t, g.file, g.message(f))
		body := readGolden(t, g.file)
		if f.typ != 0 {
			e, err := wire.ParseEnvelope(body)
			if err != nil {
				t.Fatalf("%s: %v", g.file, err)
			}
			if err := e.Verify(testPublicKey()); err != nil {
				t.Errorf("%s: %v", g.file, err)
			}
			if want := withType(g.header, f.typ); e.Header != want {
				t.Errorf("%s: header %+v, want %+v", g.file, e.Header, want)
			}
			body = e.Body
		}
		m, err := f.decode(body)
		if err != nil {
			t.Errorf("%s: %v", g.file, err)
		}
		if !reflect.DeepEqual(m, g.value) {
			t.Errorf("%s: decoded %+v, want %+v", g.file, m, g.value)
		}
	}
}

func TestGoldenCoversEveryForm(t *testing.T) {
	seen, files := map[string]bool{}, map[string]bool{"schema.hex": true, "schema_statistics.hex": true}
	for _, g := range goldens() {
		seen[g.form], files[g.file+".hex"] = true, true
	}
	for _, f := range forms() {
		if !seen[f.name] {
			t.Errorf("no golden file of %s", f.name)
		}
	}
	dir, err := os.ReadDir(filepath.Join("testdata", "golden"))
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range dir {
		if !files[entry.Name()] {
			t.Errorf("%s is left over", entry.Name())
		}
	}
}

// TestGoldenSchemas compares the bytes that are hashed for a tensor schema with the output of an encoder that was
// written from docs/PROTOCOL.md.
func TestGoldenSchemas(t *testing.T) {
	for name, s := range map[string]wire.TensorSchema{"schema": smallSchema(),
		"schema_statistics": statisticsSchema()} {
		le := binary.LittleEndian
		p := le.AppendUint16(nil, uint16(len(s)))
		for _, tensor := range s {
			p = le.AppendUint16(p, uint16(len(tensor.Name)))
			p = append(p, tensor.Name...)
			p = append(p, byte(tensor.DType), byte(len(tensor.Shape)))
			for _, n := range tensor.Shape {
				p = le.AppendUint32(p, n)
			}
		}
		checkGolden(t, name, p)
		if got, want := s.Hash(), digestOf(p); got != want {
			t.Errorf("%s: Hash is %v, SHA-256 of the golden bytes is %v", name, got, want)
		}
	}
}
