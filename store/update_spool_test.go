package store

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestSpoolServesWhatWasPut(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spool")
	want := map[string][]byte{}
	s := mustOpen(t, dir)
	for _, agent := range []string{"pi-2", "pi-10", "a", strings.Repeat("z", maxAgentName)} {
		want[agent] = bytes.Repeat([]byte(agent), len(want)*10)
		mustPut(t, s, agent, want[agent])
	}
	wantServed(t, s, want)
	mustClose(t, s)

	s = mustOpen(t, dir)
	defer mustClose(t, s)
	wantServed(t, s, want)
	if _, err := s.ReadPayload("nobody", nil); err == nil {
		t.Error("a payload for an agent without update")
	}
	large := make([]byte, 0, 1<<10)
	if got, err := s.ReadPayload("a", large); err != nil || &got[0] != &large[:1][0] {
		t.Errorf("Payload did not use dst: %v", err)
	}
}

func TestSpoolRefusals(t *testing.T) {
	s := mustOpen(t, t.TempDir())
	mustPut(t, s, "a", []byte("update"))
	good := entryOf("b", []byte("update"))
	with := func(change func(e *SpoolEntry)) SpoolEntry {
		e := good
		change(&e)
		return e
	}
	for _, tc := range []struct {
		name string
		e    SpoolEntry
		want string
	}{
		{"no agent", with(func(e *SpoolEntry) { e.Agent = "" }), "agent id has 0 bytes"},
		{"long agent", with(func(e *SpoolEntry) { e.Agent = strings.Repeat("x", 256) }), "agent id has 256 bytes"},
		{"long manifest", with(func(e *SpoolEntry) { e.SignedManifest = make([]byte, maxSignedManifest+1) }),
			"at most 65536"},
		{"wrong size", with(func(e *SpoolEntry) { e.PayloadSize++ }), "its manifest specifies 7"},
	} {
		if err := s.Put(tc.e, []byte("update")); err == nil ||
			!strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want %q", tc.name, err, tc.want)
		}
	}
	if err := s.Put(entryOf("a", []byte("other")), []byte("other")); !errors.Is(err,
		ErrDigestConflict) {
		t.Errorf("another update of the same agent: %v, want ErrConflict", err)
	}
	before := mustRead(t, s.logPath)
	mustPut(t, s, "a", []byte("update"))
	if !bytes.Equal(mustRead(t, s.logPath), before) {
		t.Error("the same update again was written again")
	}
	wantServed(t, s, map[string][]byte{"a": []byte("update")})
	mustClose(t, s)
	mustClose(t, s) // a second Close must succeed
	if err := s.Put(good, []byte("update")); !errors.Is(err, ErrClosed) {
		t.Errorf("Put after Close: %v, want ErrClosed", err)
	}
}

// TestSpoolKeepsItsOwnMeta checks that the caller may reuse the buffers that it passed to Put.
func TestSpoolKeepsItsOwnMeta(t *testing.T) {
	s := mustOpen(t, t.TempDir())
	defer mustClose(t, s)
	e := entryOf("a", nil)
	e.SignedManifest = bytes.Clone(e.SignedManifest)
	if err := s.Put(e, nil); err != nil {
		t.Fatal(err)
	}
	clear(e.SignedManifest)
	wantServed(t, s, map[string][]byte{"a": nil})
}

func TestOpenSpoolNeedsParent(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "typo", "spool")
	if _, err := LocalDisk.OpenSpool(dir, testID, failOn(t)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v, want not exist", err)
	}
}

// TestSpoolConcurrentPuts stores updates of many agents concurrently, each update twice, while other goroutines read.
// One agent also tries to store two different updates, of which one must be rejected.
func TestSpoolConcurrentPuts(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir)
	const agents = 40
	want := make(map[string][]byte, agents)
	var wg sync.WaitGroup
	for i := range agents {
		agent := fmt.Sprintf("agent-%02d", i)
		payload := bytes.Repeat([]byte{byte(i)}, 100*i)
		want[agent] = payload
		for range 2 {
			wg.Go(func() {
				if err := s.Put(entryOf(agent, payload), payload); err != nil {
					t.Error(err)
				}
				got, err := s.ReadPayload(agent, nil)
				if err != nil || sha256.Sum256(got) != sha256.Sum256(payload) {
					t.Errorf("%s is not there after its Put: %v", agent, err)
				}
				s.Entries()
			})
		}
	}
	var mu sync.Mutex
	conflicts := 0
	for _, payload := range [][]byte{[]byte("one"), []byte("two")} {
		wg.Go(func() {
			err := s.Put(entryOf("twofaced", payload), payload)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				want["twofaced"] = payload
			case errors.Is(err, ErrDigestConflict):
				conflicts++
			default:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if conflicts != 1 {
		t.Errorf("%d conflicts, want 1", conflicts)
	}
	wantServed(t, s, want)
	mustClose(t, s)
	s = mustOpen(t, dir)
	defer mustClose(t, s)
	wantServed(t, s, want)
}
