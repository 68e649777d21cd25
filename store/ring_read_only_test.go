package store

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// stored returns the number of entries and the damage that ReadRing reports.
func stored(t *testing.T, disk Disk, dir string) (entries int, damage []error, err error) {
	t.Helper()
	err = disk.ReadRing(dir, func(_ uint64, b RingBatch) { entries += b.EntryCount },
		func(err error) { damage = append(damage, err) })
	return entries, damage, err
}

// TestReadRing checks that ReadRing reads a ring that is open in another process, has a torn end or is damaged, without
// changing its files.
func TestReadRing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ring")
	if _, _, err := stored(t, LocalDisk, dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no ring: %v", err)
	}
	r, _ := mustOpenRing(t, LocalDisk, dir, RingLimits{MaxBytes: MinRingBytes, MaxEntries: 160})
	mustFill(t, r, 9, 5) // ten entries per segment
	if n, damage, err := stored(t, LocalDisk, dir); n != 45 || damage != nil || err != nil {
		t.Errorf("%d entries, %v, %v; want 45", n, damage, err)
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
	if n, damage, err := stored(t, LocalDisk, dir); n != 45 || damage != nil || err != nil {
		t.Errorf("a torn end: %d entries, %v, %v; want 45", n, damage, err)
	}
	text, err := os.ReadFile(damaged)
	if err != nil {
		t.Fatal(err)
	}
	text[segmentHeadSize+batchHeadSize] ^= 1
	if err := os.WriteFile(damaged, text, 0o600); err != nil {
		t.Fatal(err)
	}
	n, damage, err := stored(t, LocalDisk, dir)
	if corrupt := (*CorruptError)(nil); n != 35 || err != nil || len(damage) != 1 || !errors.As(damage[0], &corrupt) ||
		corrupt.Path != damaged {
		t.Errorf("a damaged segment: %d entries, %v, %v; want 35", n, damage, err)
	}
	disk := hooked(func(f File) File {
		return &hookFile{File: f, read: func() error {
			if f.Name() == names[2] {
				return syscall.EIO
			}
			return nil
		}}
	})
	n, damage, err = stored(t, disk, dir)
	if n != 10 || len(damage) != 1 || !errors.Is(err, syscall.EIO) {
		t.Errorf("a segment that cannot be read, behind a damaged one: %d entries, %v, %v", n, damage, err)
	}
	after, err := filepath.Glob(filepath.Join(dir, "*"))
	if info, failed := os.Stat(last); err != nil || failed != nil || len(after) != 5 ||
		info.Size() != int64(len(whole)+40) {
		t.Errorf("%v, %v, %v: reading changes the ring", after, err, failed)
	}
}
