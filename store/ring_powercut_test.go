package store

import (
	"bytes"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"testing"
)

// A ring requires the operations below in addition to the operations of WriteFileDurably.

func newCuttableDisk(operations int) *cuttableDisk {
	return &cuttableDisk{left: operations, names: map[string]*inode{}, durable: map[string]*inode{}}
}

func (d *cuttableDisk) Mkdir(string, fs.FileMode) error { return d.on() }

func (d *cuttableDisk) Lstat(name string) (fs.FileInfo, error) {
	if i, found := d.names[name]; found {
		return named{sizeInfo{size: int64(len(i.data))}, path.Base(name)}, nil
	}
	return nil, fs.ErrNotExist
}

func (d *cuttableDisk) ReadDir(dir string) (entries []fs.DirEntry, err error) {
	for _, name := range slices.Sorted(maps.Keys(d.names)) {
		if path.Dir(name) == dir {
			entries = append(entries, fs.FileInfoToDirEntry(named{name: path.Base(name)}))
		}
	}
	return entries, nil
}

func (i *inode) Truncate(size int64) error {
	if err := i.disk.on(); err != nil {
		return err
	}
	i.data = bytes.Clone(i.data[:size])
	return nil
}

// named is a directory entry for a file of the simulated disk.
type named struct {
	sizeInfo
	name string
}

func (n named) Name() string    { return n.name }
func (named) Mode() fs.FileMode { return 0o600 }
func (named) IsDir() bool       { return false }

// TestRingPowerCuts cuts the power at each operation of opening and filling a ring that removes segments. Each
// acknowledged entry must be found once, unless it was removed to make room. No segment may be renamed.
func TestRingPowerCuts(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	keep := RingLimits{MaxBytes: MinRingBytes, MaxEntries: 64}
	seen := map[string]int{}
	times := 30
	if testing.Short() {
		times = 10
	}
	for operations := range 90 {
		for range times {
			d, acknowledged := newCuttableDisk(30), uint64(0)
			for range 2 {
				acknowledged = fillUntilCut(t, Disk{d}, keep, acknowledged)
				d.cut(rnd)
				d.left = operations
			}
			acknowledged = fillUntilCut(t, Disk{d}, keep, acknowledged)
			d.cut(rnd)
			d.left = 1 << 30
			r, found := mustOpenRing(t, Disk{d}, "ring", keep)
			if found.SetAsideErrors != nil {
				t.Fatalf("%d operations: found %+v", operations, found)
			}
			got, _, err := readNumbers(t, r, RingPosition{})
			if err != nil || acknowledged > 0 && (len(got) == 0 || got[len(got)-1] < acknowledged ||
				got[0] > max(acknowledged, 60)-59 || len(got) != int(got[len(got)-1]-got[0])+1) {
				t.Fatalf("%d operations: of %d acknowledged, %v are read, %v", operations, acknowledged, got, err)
			}
			seen["cut off"] += int(min(found.CutBytes, 1))
			if len(got) > 0 && got[len(got)-1] > acknowledged {
				seen["more than acknowledged"]++
			}
			mustCloseRing(t, r)
		}
	}
	if seen["cut off"] == 0 || seen["more than acknowledged"] == 0 {
		t.Errorf("not all endings were seen: %v", seen)
	}
}

// fillUntilCut appends batches until the power fails or 40 batches are stored. It returns the number of the last
// acknowledged entry.
func fillUntilCut(t *testing.T, d Disk, keep RingLimits, acknowledged uint64) uint64 {
	t.Helper()
	r, found, err := d.OpenRing("ring", keep)
	if found.SetAsideErrors != nil {
		t.Fatalf("found %+v", found)
	}
	if err != nil {
		return acknowledged
	}
	for range 40 {
		if r.Append(numbered(r.NextEntryNumber(), 2)) == nil {
			acknowledged = r.NextEntryNumber() - 1
		}
	}
	_ = r.Close() // may fail after the power cut
	return acknowledged
}
