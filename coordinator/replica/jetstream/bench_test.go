package jetstream

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/fedmesh/fedmesh/coordinator/replica"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
	"github.com/fedmesh/fedmesh/store"
)

// BenchmarkCommit is what a round waits for at three servers: a journal of 4 kB, and a model in its slot.
func BenchmarkCommit(b *testing.B) {
	n := brokers.NewNATS(b, 3, 0, "")
	n.Start(b)
	for _, model := range []int{0, 100 << 10, 1 << 20, 10 << 20} {
		b.Run(fmt.Sprint(model, " bytes"), func(b *testing.B) {
			dir := b.TempDir()
			r := replica.New(replica.Config{Store: open(b, n, fmt.Sprint("bench", model)), Name: "one",
				Instance: rand.Uint64(), Runtime: host.RealTime{}, Observer: &leads{},
				Folder: replica.Folder{Disk: store.Machine, Dir: dir, Keeps: func(string) bool { return true }}})
			lead, err := r.Stand(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			source := rand.NewChaCha8([32]byte{1})
			for b.Loop() {
				err := lead.Commit(b.Context(), 0, func() error {
					for name, size := range map[string]int{"run.a": 4000, "model.a": model} {
						path := filepath.Join(dir, name)
						content := make([]byte, size) // equal pieces are one
						_, _ = source.Read(content)   // cannot fail
						if err := os.WriteFile(path, content, 0o600); err != nil {
							return err
						}
					}
					return nil
				})
				if err != nil {
					b.Fatal(err)
				}
			}
			if err := lead.StepDown(b.Context(), errTest); err != nil {
				b.Fatal(err)
			}
		})
	}
}
