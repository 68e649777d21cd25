package store

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// stored returns the entries that ReadRing finds.
func stored(t *testing.T, dir string) (entries int, err error) {
	t.Helper()
	err = Machine.ReadRing(dir, func(b Batch) { entries += b.Entries })
	return entries, err
}

// TestReadRing: a ring is read while it is open, with a torn end, and with damage, and nothing of it changes.
func TestReadRing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ring")
	if _, err := stored(t, dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no ring: %v", err)
	}
	r, _ := mustOpenRing(t, Machine, dir, Keep{Bytes: LeastRing, Entries: 160})
	mustFill(t, r, 9, 5) // ten entries a segment
	if n, err := stored(t, dir); n != 45 || err != nil {
		t.Errorf("%d entries, %v; want 45", n, err)
	}
	mustCloseRing(t, r)
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(names) != 5 {
		t.Fatal(names, err)
	}
	last, damaged := names[4], names[1]
	whole, err := os.ReadFile(last)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(last, append(whole, appendBatch(nil, 46, numbered(46, 5))[:40]...), 0o600); err != nil {
		t.Fatal(err)
	}
	if n, err := stored(t, dir); n != 45 || err != nil {
		t.Errorf("a torn end: %d entries, %v; want 45", n, err)
	}
	text, err := os.ReadFile(damaged)
	if err != nil {
		t.Fatal(err)
	}
	text[segmentHead+batchHead] ^= 1
	if err := os.WriteFile(damaged, text, 0o600); err != nil {
		t.Fatal(err)
	}
	n, err := stored(t, dir)
	if corrupt := (*CorruptError)(nil); n != 35 || !errors.As(err, &corrupt) || corrupt.Path != damaged {
		t.Errorf("a damaged segment: %d entries, %v; want 35", n, err)
	}
	after, err := filepath.Glob(filepath.Join(dir, "*"))
	if info, failed := os.Stat(last); err != nil || failed != nil || len(after) != 5 ||
		info.Size() != int64(len(whole)+40) {
		t.Errorf("%v, %v, %v: reading changes the ring", after, err, failed)
	}
}
