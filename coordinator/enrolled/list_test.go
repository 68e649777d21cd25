package enrolled

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

func keyOf(k int) ed25519.PublicKey {
	return bytes.Repeat([]byte{byte(k), byte(k >> 8), byte(k >> 16), 7}, ed25519.PublicKeySize/4)
}

func idOf(k int) wire.AgentID { return wire.AgentID(fmt.Sprint("device-", k)) }

func tableOf(t testing.TB, n int) *ListBuilder {
	t.Helper()
	table := NewListBuilder(n)
	for k := range n {
		table.Add(idOf(k), keyOf(k))
	}
	if _, repeated := table.FindRepeatedID(); repeated {
		t.Fatal("an id is there twice")
	}
	return table
}

// TestList looks up all agents in lists of various sizes, in memory and on disk.
func TestList(t *testing.T) {
	for _, n := range []int{0, 1, 2, 15, 16, 17, 1023, 1024, 1025, 5000} {
		path, text := filepath.Join(t.TempDir(), "agents"), store.FileStamp{Size: 1, ModifiedAt: 2, ChangedAt: 3}
		table := tableOf(t, n)
		if err := table.Save(store.LocalDisk, path, text); err != nil {
			t.Fatal(err)
		}
		file, err := Open(store.LocalDisk, path, text)
		if err != nil {
			t.Fatal(err)
		}
		if counted, err := CountAgents(store.LocalDisk, path, text); counted != n || err != nil {
			t.Errorf("%d agents counted, error %v, want %d", counted, err, n)
		}
		for where, l := range map[string]*List{"memory": table.BuildList(), "file": file} {
			if l.Len() != n {
				t.Errorf("%s: %d agents, want %d", where, l.Len(), n)
			}
			for k := range n + 20 {
				key, err := l.Key(idOf(k))
				if err != nil || k < n && !keyOf(k).Equal(key) || k >= n && key != nil {
					t.Fatalf("%s of %d: agent %d has the key %x, error %v", where, n, k, key, err)
				}
			}
		}
		if err := errors.Join(file.Close(), file.Close()); err != nil {
			t.Error(err)
		}
		if _, err := file.Key(idOf(0)); n > 0 && err == nil {
			t.Error("a closed file gives keys")
		}
	}
}

func TestRepeated(t *testing.T) {
	table := tableOf(t, 100)
	table.Add("other", keyOf(17))
	if key := table.FindRepeatedKey(); !keyOf(17).Equal(key) {
		t.Errorf("repeated key %x", key)
	}
	if _, repeated := table.FindRepeatedID(); repeated {
		t.Error("no id is there twice")
	}
	table.Add(idOf(42), keyOf(1000))
	if is, repeated := table.FindRepeatedID(); !repeated || !is(idOf(42)) || is(idOf(17)) {
		t.Error("an id is there twice, and is not told")
	}
}

// TestStale checks that a list file is rejected if it is missing, made from another text, or damaged at any byte.
func TestStale(t *testing.T) {
	path, text := filepath.Join(t.TempDir(), "agents"), store.FileStamp{Size: 1, ModifiedAt: 2, ChangedAt: 3}
	stale := func(what string, text store.FileStamp) {
		t.Helper()
		if _, err := Open(store.LocalDisk, path, text); !errors.Is(err, ErrStale) {
			t.Errorf("%s: error %v", what, err)
		}
	}
	stale("missing", text)
	if err := tableOf(t, 40).Save(store.LocalDisk, path, text); err != nil {
		t.Fatal(err)
	}
	for _, other := range []store.FileStamp{{ModifiedAt: 2, ChangedAt: 3}, {Size: 1, ChangedAt: 3}, {Size: 1,
		ModifiedAt: 2}} {
		stale("another text", other)
		if _, err := CountAgents(store.LocalDisk, path, other); !errors.Is(err, ErrStale) {
			t.Errorf("counted: error %v", err)
		}
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	put := func(b []byte) {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for k := range good {
		bad := bytes.Clone(good)
		bad[k] ^= 1
		put(bad)
		stale(fmt.Sprint("damaged at byte ", k), text)
	}
	put(good[:len(good)-1])
	stale("short", text)
	put(append(bytes.Clone(good), 0))
	stale("long", text)
	put(good[:headSize-1])
	stale("head", text)
	put(good)
	if l, err := Open(store.LocalDisk, path, text); err != nil || l.Close() != nil {
		t.Error("the whole file is stale:", err)
	}
}
