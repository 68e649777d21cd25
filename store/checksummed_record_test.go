package store

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func TestRecordRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "record")
	if _, _, err := LocalDisk.LoadRecord(path, 100); !errors.Is(err, ErrNoRecord) {
		t.Fatalf("error %v, want ErrNoRecord", err)
	}
	for _, body := range [][]byte{{}, []byte("x"), bytes.Repeat([]byte("state"), 20)} {
		if err := LocalDisk.SaveRecord(path, 7, body); err != nil {
			t.Fatal(err)
		}
		version, got, err := LocalDisk.LoadRecord(path, len(body))
		if err != nil || version != 7 || !bytes.Equal(got, body) {
			t.Errorf("loaded version %d, %q, %v", version, got, err)
		}
		var corrupt *CorruptError
		if _, _, err := LocalDisk.LoadRecord(path, len(body)-1); !errors.As(err, &corrupt) {
			t.Errorf("a body above the limit: %v, want a CorruptError", err)
		}
	}
}

func TestRecordDamage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "record")
	if err := LocalDisk.SaveRecord(path, 7, []byte("some state")); err != nil {
		t.Fatal(err)
	}
	good := mustRead(t, path)
	check := func(what string, at int, p []byte) {
		mustWrite(t, path, p)
		var corrupt *CorruptError
		if _, _, err := LocalDisk.LoadRecord(path, 100); !errors.As(err, &corrupt) || corrupt.Path != path {
			t.Fatalf("%s at byte %d: %v, want a CorruptError", what, at, err)
		}
	}
	for i := range good {
		check("cut", i, good[:i])
		for bit := range 8 {
			flipped := bytes.Clone(good)
			flipped[i] ^= 1 << bit
			check("flip", i, flipped)
		}
	}
	check("extra byte", len(good), append(bytes.Clone(good), 0))
}

// FuzzLoadRecord checks that LoadRecord does not panic, and that each record that it accepts is a possible output of
// SaveRecord.
func FuzzLoadRecord(f *testing.F) {
	path := filepath.Join(f.TempDir(), "seed")
	if err := LocalDisk.SaveRecord(path, 3, []byte("body")); err != nil {
		f.Fatal(err)
	}
	seed, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add(seed[:len(seed)-1])
	f.Add([]byte{})
	f.Add([]byte("FMR1\x00\x00\xff\xff\xff\xff the length says more than there is, by far ............."))
	f.Fuzz(func(t *testing.T, p []byte) {
		path := filepath.Join(t.TempDir(), "record")
		mustWrite(t, path, p)
		version, body, err := LocalDisk.LoadRecord(path, 64)
		if err != nil {
			var corrupt *CorruptError
			if !errors.As(err, &corrupt) {
				t.Fatalf("error %v, want a CorruptError", err)
			}
			return
		}
		if len(body) > 64 {
			t.Fatalf("body of %d bytes is above the limit", len(body))
		}
		if err := LocalDisk.SaveRecord(path, version, body); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(mustRead(t, path), p) {
			t.Fatal("two different files load as the same record")
		}
	})
}

func TestNextBoot(t *testing.T) {
	dir := t.TempDir()
	for want := uint64(1); want <= 3; want++ {
		got, lost, err := LocalDisk.NextBootEpoch(dir)
		if err != nil || got != want || errors.Is(lost, ErrNoRecord) != (want == 1) {
			t.Fatalf("boot %d, lost %v, %v, want %d", got, lost, err, want)
		}
	}
	path := filepath.Join(dir, BootEpochFile)
	p := mustRead(t, path)
	p[recordHeadSize] ^= 1
	damages := map[string][]byte{"flipped": p, "torn": p[:20], "empty": nil}
	if err := LocalDisk.SaveRecord(path, bootRecordVersion+1, make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	damages["another version"] = mustRead(t, path)
	n := 0
	for name, damaged := range damages {
		n++
		mustWrite(t, path, damaged)
		var corrupt *CorruptError
		if epoch, lost, err := LocalDisk.NextBootEpoch(dir); err != nil || epoch != 1 || !errors.As(lost, &corrupt) {
			t.Errorf("%s: epoch %d, lost %v, %v: want 1 and a CorruptError", name, epoch, lost, err)
		}
		if aside := mustRead(t, fmt.Sprintf("%s.aside-%d", path, n)); !bytes.Equal(aside, damaged) {
			t.Errorf("%s: what was set aside is another file", name)
		}
		if epoch, err := LocalDisk.SaveBootEpochAfter(dir, 41); epoch != 42 || err != nil {
			t.Errorf("raised to %d, %v", epoch, err)
		}
		if epoch, lost, err := LocalDisk.NextBootEpoch(dir); epoch != 43 || lost != nil || err != nil {
			t.Errorf("after that: epoch %d, %v, %v", epoch, lost, err)
		}
	}
}
