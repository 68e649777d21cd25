package jetstream

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/coordinator/replica"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
	"github.com/fedmesh/fedmesh/store"
)

// BenchmarkCommit commits a journal of 4 kB and a model to a cluster of three servers. It measures the background
// upload and the commit together.
func BenchmarkCommit(b *testing.B) {
	n := brokers.NewNATS(b, 3, 0, "")
	n.Start(b)
	for _, model := range []int{0, 100 << 10, 1 << 20, 10 << 20} {
		b.Run(fmt.Sprint(model, " bytes"), func(b *testing.B) {
			dir := b.TempDir()
			r := replica.New(replica.Config{Store: open(b, n, fmt.Sprint("bench", model)), Name: "one",
				Instance: rand.Uint64(), Runtime: host.RealTimeRuntime{}, Observer: &leads{},
				Folder: replica.ReplicatedFolder{Disk: store.LocalDisk, Dir: dir,
					IsReplicated: func(string) bool { return true }}})
			lead, err := r.AwaitLeadership(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			unchanged := func() error { return nil }
			var prepared time.Duration
			source := rand.NewChaCha8([32]byte{1})
			for b.Loop() {
				for name, size := range map[string]int{"run.a": 4000, "model.a": model} {
					content := make([]byte, size) // random content, because equal pieces would be stored only once
					_, _ = source.Read(content)   // never fails
					if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
						b.Fatal(err)
					}
				}
				began := time.Now()
				lead.PrepareFolderCommit(b.Context()) // runs concurrently with the round in production
				prepared += time.Since(began)
				if err := lead.CommitFolderWrite(b.Context(), 0, unchanged); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(prepared.Milliseconds())/float64(b.N), "ms-beside/op")
			if err := lead.StepDown(b.Context(), errTest); err != nil {
				b.Fatal(err)
			}
		})
	}
}
