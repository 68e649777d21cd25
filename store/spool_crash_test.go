package store

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// smallLog writes three updates to a spool and returns the bytes of the log file and the end offset of each entry.
func smallLog(t *testing.T, dir string) (path string, log []byte, updates map[string][]byte, ends []int) {
	t.Helper()
	updates = map[string][]byte{"a": []byte("first payload"), "b": nil, "c": []byte("the third")}
	s := mustOpen(t, dir)
	for _, agent := range []string{"a", "b", "c"} {
		mustPut(t, s, agent, updates[agent])
		ends = append(ends, int(s.logEndOffset))
	}
	mustClose(t, s)
	return s.logPath, mustRead(t, s.logPath), updates, ends
}

// TestSpoolCutAnywhere truncates the log of a spool after each byte. The spool must return exactly the entries before
// the cut, and accept new updates.
func TestSpoolCutAnywhere(t *testing.T) {
	dir := t.TempDir()
	path, log, updates, ends := smallLog(t, dir)
	for cut := range len(log) + 1 {
		mustWrite(t, path, log[:cut])
		s, problems := mustReopen(t, dir)
		want := map[string][]byte{}
		whole := 0
		for i, agent := range []string{"a", "b", "c"} {
			if ends[i] <= cut {
				want[agent], whole = updates[agent], ends[i]
			}
		}
		wantServed(t, s, want)
		if (len(problems) > 0) != (cut > whole) {
			t.Errorf("cut at %d: reported %v", cut, problems)
		}
		if got := mustRead(t, path); len(got) != whole {
			t.Errorf("cut at %d: log has %d bytes, want the torn ones removed: %d", cut, len(got), whole)
		}
		mustPut(t, s, "c", updates["c"])
		want["c"] = updates["c"]
		mustClose(t, s)
		s = mustOpen(t, dir)
		wantServed(t, s, want)
		mustClose(t, s)
		if t.Failed() {
			t.Fatalf("cut at byte %d of %d", cut, len(log))
		}
	}
}

// TestSpoolFlipAnywhere flips each byte of the log of a spool. Damage must be reported, and a damaged entry must never
// be returned. Entries before the damage must remain. Damage outside the fixed-size part of an entry must affect only
// that entry.
func TestSpoolFlipAnywhere(t *testing.T) {
	dir := t.TempDir()
	path, log, updates, ends := smallLog(t, dir)
	agents := []string{"a", "b", "c"}
	for at := range log {
		flipped := bytes.Clone(log)
		flipped[at] ^= 1 << (at % 8)
		mustWrite(t, path, flipped)
		s, problems := mustReopen(t, dir)
		want := map[string][]byte{}
		hit := slices.IndexFunc(ends, func(end int) bool { return at < end })
		start := 0
		if hit > 0 {
			start = ends[hit-1]
		}
		for i, agent := range agents {
			if i < hit || i > hit && at >= start+spoolEntryHeadSize {
				want[agent] = updates[agent]
			}
		}
		wantServed(t, s, want)
		if len(problems) == 0 {
			t.Error("nothing was reported")
		}
		mustClose(t, s)
		if t.Failed() {
			t.Fatalf("flip at byte %d of %d", at, len(log))
		}
	}
}

// TestSpoolPayloadVerifies checks that ReadPayload detects an entry that was damaged while the spool is open.
func TestSpoolPayloadVerifies(t *testing.T) {
	s := mustOpen(t, t.TempDir())
	defer mustClose(t, s)
	mustPut(t, s, "a", []byte("payload"))
	if _, err := s.logFile.WriteAt([]byte{'X'}, s.logEndOffset-1); err != nil {
		t.Fatal(err)
	}
	var corrupt *CorruptError
	if p, err := s.ReadPayload("a", nil); !errors.As(err, &corrupt) || p != nil {
		t.Errorf("payload %q, %v, want a CorruptError", p, err)
	}
}

// TestSpoolIsBoundToItsRound checks that a log renamed to another round has no valid entries.
func TestSpoolIsBoundToItsRound(t *testing.T) {
	dir := t.TempDir()
	_, log, _, _ := smallLog(t, dir)
	for _, id := range []RoundSpoolID{
		{Run: 4, Round: 9, BaseModelDigest: testID.BaseModelDigest}, {Run: 3, Round: 8,
			BaseModelDigest: testID.BaseModelDigest}, {Run: 3, Round: 9},
	} {
		path := spoolPath(dir, id)
		mustWrite(t, path, log)
		problems := 0
		s, err := LocalDisk.OpenSpool(dir, id, func(string) { problems++ })
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Entries(); len(got) != 0 || problems == 0 {
			t.Errorf("%+v serves %v of another round, %d problems", id, got, problems)
		}
		mustClose(t, s)
	}
}

// TestSpoolDamagedUpdateHeals checks that a damaged update is not returned and can be stored again, although the
// damaged bytes remain in the log.
func TestSpoolDamagedUpdateHeals(t *testing.T) {
	dir := t.TempDir()
	path, log, updates, ends := smallLog(t, dir)
	log[ends[0]-1] ^= 1 // damages the last byte of the payload of a; valid entries follow
	mustWrite(t, path, log)

	s, problems := mustReopen(t, dir)
	wantServed(t, s, map[string][]byte{"b": updates["b"], "c": updates["c"]})
	if len(problems) != 1 {
		t.Errorf("reported %v, want the damage", problems)
	}
	if _, err := s.ReadPayload("a", nil); err == nil {
		t.Error("a damaged update is served")
	}
	mustPut(t, s, "a", updates["a"])
	wantServed(t, s, updates)
	mustClose(t, s)

	s, _ = mustReopen(t, dir)
	wantServed(t, s, updates)
	mustClose(t, s)
}

// TestSpoolPowerCuts simulates power cuts at random moments, after which each sector of the log contains a version that
// was written, or zeros. The spool must return only correct updates, and lost updates can be stored again.
func TestSpoolPowerCuts(t *testing.T) {
	const sector = 64 // smaller than a real sector, to cover more cases with less data
	rnd := rand.New(rand.NewPCG(1, 2))
	lost := 0
	for range 30 {
		dir, offered := t.TempDir(), map[string][]byte{}
		for range 10 {
			s, _ := mustReopen(t, dir)
			there := map[string][]byte{}
			for _, e := range s.Entries() {
				there[e.Agent] = offered[e.Agent]
			}
			wantServed(t, s, there)
			lost += len(offered) - len(there)
			for range rnd.IntN(4) {
				agent := fmt.Sprint("agent-", rnd.IntN(20))
				if offered[agent] == nil {
					offered[agent] = bytes.Repeat([]byte{byte(rnd.Uint32())}, 1+rnd.IntN(300))
				}
				mustPut(t, s, agent, offered[agent])
			}
			mustClose(t, s)
			log := mustRead(t, s.logPath)
			after := make([]byte, rnd.IntN(len(log)+1))
			for at := 0; at < len(after); at += sector {
				if rnd.IntN(10) > 0 {
					copy(after[at:min(at+sector, len(after))], log[at:])
				}
			}
			mustWrite(t, s.logPath, after)
			if t.Failed() {
				t.FailNow()
			}
		}
	}
	if lost == 0 {
		t.Error("no power cut took anything")
	}
}

// FuzzOpenSpool checks that OpenSpool does not panic with an arbitrary log, and that every payload that the spool
// returns matches its digest.
func FuzzOpenSpool(f *testing.F) {
	payload := []byte("payload")
	entry := append(encodeSpoolEntryHead(testID, entryOf("a", payload), false), payload...)
	f.Add(entry)
	f.Add(slices.Concat(entry, entry, entry[:len(entry)-1]))
	f.Fuzz(func(t *testing.T, log []byte) {
		dir := t.TempDir()
		path := spoolPath(dir, testID)
		mustWrite(t, path, log)
		s, _ := mustReopen(t, dir)
		for _, e := range s.Entries() {
			if _, err := s.ReadPayload(e.Agent, nil); err != nil {
				t.Errorf("entry %+v is listed, but: %v", e, err)
			}
		}
		mustClose(t, s)
	})
}
