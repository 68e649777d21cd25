package agentlist

import (
	"bufio"
	"crypto/ed25519"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/internal/keys"
	"github.com/fedmesh/fedmesh/wire"
)

func keyOf(k int) ed25519.PublicKey {
	key := make([]byte, ed25519.PublicKeySize)
	binary.LittleEndian.PutUint64(key, uint64(k)+2)
	return key
}

func writeAgents(t testing.TB, path string, ids ...string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriter(f)
	for k, id := range ids {
		fmt.Fprintf(w, "%s %s\n", id, keys.FormatPublic(keyOf(k)))
	}
	if w.Flush() != nil || f.Close() != nil {
		t.Fatal("cannot write")
	}
}

// BenchmarkAgents measures, for a list of a million agents, a start with a changed list, a start with an unchanged
// list, and a look-up.
func BenchmarkAgents(b *testing.B) {
	const n = 1_000_000
	dir := b.TempDir()
	text, compiled, now := filepath.Join(dir, "agents.keys"), filepath.Join(dir, "agents"), time.Now().Add(time.Hour)
	ids := make([]string, n)
	for k := range ids {
		ids[k] = fmt.Sprintf("station-%07d", k)
	}
	writeAgents(b, text, ids...)
	b.Run("changed", func(b *testing.B) {
		for b.Loop() {
			os.Remove(compiled)
			benchOpen(b, text, compiled, now)
		}
	})
	b.Run("start", func(b *testing.B) {
		for b.Loop() {
			if _, err := Count(text, compiled); err != nil {
				b.Fatal(err)
			}
			benchOpen(b, text, compiled, now)
		}
		status, err := os.ReadFile("/proc/self/status")
		if err != nil {
			b.Skip(err)
		}
		for line := range strings.Lines(string(status)) {
			if name, rest, _ := strings.Cut(line, ":"); name == "VmRSS" {
				var kB float64
				if _, err := fmt.Sscan(rest, &kB); err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(kB/1000, "MB-resident")
			}
		}
	})
	b.Run("lookup", func(b *testing.B) {
		l, err := OpenCompiledList(text, compiled, now)
		if err != nil {
			b.Fatal(err)
		}
		defer l.Close()
		rng, id := rand.New(rand.NewPCG(1, 2)), []byte(ids[0])
		for b.Loop() {
			id = strconv.AppendInt(id[:len("station")], 10*n+rng.Int64N(n), 10)
			id[len("station")] = '-' // build the id here, as from a message: a million ids do not fit into the caches
			if key, err := l.Key(wire.AgentID(id)); err != nil || key == nil {
				b.Fatal(key, err)
			}
		}
	})
}

func benchOpen(b *testing.B, text, compiled string, now time.Time) {
	l, err := OpenCompiledList(text, compiled, now)
	if err != nil {
		b.Fatal(err)
	}
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
}

// TestOpenAgents checks that the compiled list is made again if and only if the list has changed.
func TestOpenAgents(t *testing.T) {
	dir := t.TempDir()
	text, compiled := filepath.Join(dir, "agents.keys"), filepath.Join(dir, "agents")
	now := time.Now()
	open := func(want ...string) os.FileInfo {
		t.Helper()
		l, err := OpenCompiledList(text, compiled, now)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		n, err := Count(text, compiled)
		if err != nil || n != len(want) || l.Len() != len(want) {
			t.Errorf("%d agents counted, error %v, and %d in the list; want %d", n, err, l.Len(), len(want))
		}
		for k, id := range want {
			if key, err := l.Key(wire.AgentID(id)); err != nil || !keyOf(k).Equal(key) {
				t.Errorf("%s has the key %x, error %v", id, key, err)
			}
		}
		info, err := os.Stat(compiled)
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	writeAgents(t, text, "a", "b")
	first := open("a", "b")
	if again := open("a", "b"); os.SameFile(first, again) {
		t.Error("a list that was changed a moment ago is taken for one that cannot change within the same tick")
	}
	now = now.Add(time.Hour)
	old := open("a", "b")
	if again := open("a", "b"); !os.SameFile(old, again) {
		t.Error("an unchanged list is read again")
	}
	writeAgents(t, text, "a", "c") // the new list has the same length as the old one
	if changed := open("a", "c"); os.SameFile(old, changed) {
		t.Error("a changed list was not read")
	}
	writeAgents(t, text, "a", "c", "a")
	if _, err := OpenCompiledList(text, compiled, now); err == nil {
		t.Error("an id is there twice")
	}
	if _, err := Count(text, compiled); err == nil {
		t.Error("an id is there twice")
	}
}

// FuzzAgents opens any text as the list of agents. An accepted list has each id once and no weak key, and is equal when
// read again from the compiled file.
func FuzzAgents(f *testing.F) {
	f.Add([]byte("# devices\n\na " + keys.FormatPublic(keyOf(1)) + "\nb " + keys.FormatPublic(keyOf(2)) + "\n"))
	f.Add([]byte("a " + keys.FormatPublic(make([]byte, 32)) + "\n"))
	dir := f.TempDir()
	list, compiled := filepath.Join(dir, "agents.keys"), filepath.Join(dir, "agents")
	now := time.Now()
	f.Fuzz(func(t *testing.T, content []byte) {
		if err := os.WriteFile(list, content, 0o600); err != nil {
			t.Fatal(err)
		}
		now = now.Add(time.Hour)
		l, err := OpenCompiledList(list, compiled, now)
		if err != nil {
			return
		}
		defer l.Close()
		ids, err := IDs(list)
		if err != nil || len(ids) != l.Len() {
			t.Fatalf("%d ids, error %v, of a list of %d", len(ids), err, l.Len())
		}
		seen := map[wire.AgentID]bool{}
		for _, id := range ids {
			key, err := l.Key(id)
			_, refused := keys.ParsePublic(keys.FormatPublic(key))
			if err != nil || seen[id] || id.ValidateNonCoordinator() != nil || refused != nil {
				t.Errorf("%q has the key %x, error %v; twice: %t", id, key, err, seen[id])
			}
			seen[id] = true
		}
	})
}
