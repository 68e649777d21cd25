package rows

import (
	"math/rand/v2"
	"syscall"
	"testing"
	"unsafe"

	"github.com/fedmesh/fedmesh/learner"
)

// BenchmarkDraw measures drawing 32 of 500,000 rows with 16 features: from memory, from a row file, and from a memory
// mapping of the file. The whole file is in the page cache.
func BenchmarkDraw(b *testing.B) {
	const rows, features = 500_000, 16
	rng := rand.New(rand.NewPCG(1, 1))
	x, y := make([]float32, rows*features), make([]float32, rows)
	for i := range x {
		x[i] = rng.Float32()
	}
	f, err := newRowFile(b.TempDir(), features, false)
	if err == nil {
		err = f.addRows(x, y, nil)
	}
	if err == nil {
		err = f.flush()
	}
	if err != nil {
		b.Fatal(err)
	}
	defer f.File.Close()
	mapped, err := syscall.Mmap(int(f.File.Fd()), 0, rows*int(f.rowBytes), syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		b.Fatal(err)
	}
	defer syscall.Munmap(mapped) //nolint:errcheck // the process ends
	draw := func(b *testing.B, from *learner.Samples[float32]) {
		var batch learner.Batch[float32]
		for b.Loop() {
			from.DrawBatch(&batch, 32, rng)
		}
	}
	b.Run("memory", func(b *testing.B) { draw(b, learner.NewSamples(features, x, y)) })
	b.Run("pread", func(b *testing.B) {
		draw(b, learner.NewTableSamples(features, rows, learner.StoredTable[float32](&preparedRowFile{file: f})))
	})
	b.Run("mmap", func(b *testing.B) {
		draw(b, learner.NewTableSamples(features, rows, learner.StoredTable[float32](mapping(mapped))))
	})
}

// mapping is a memory-mapped file of rows with 16 features.
type mapping []byte

func (m mapping) ReadRows(x, y []float32, from int) {
	all := unsafe.Slice((*float32)(unsafe.Pointer(&m[0])), len(m)/4)
	copy(x, all[17*from:])
	y[0] = all[17*from+16]
}
