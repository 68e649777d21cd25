package conformance

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit/hosts"
	"github.com/fedmesh/fedmesh/internal/testkit/mqtttest"
	"github.com/fedmesh/fedmesh/mqtt/transfer"
	"github.com/fedmesh/fedmesh/wire"
)

// testModelToMany lets 50 agents download a model concurrently and checks the broker's peak memory. The bound is the
// sum of four parts: the memory of the idle broker, the size of the model, the allowed cost of clients that do not
// read, and 80 MiB for late garbage collection. The embedded broker and NATS stay below the bound only with a memory
// limit (GOMEMLIMIT).
func testModelToMany(t *testing.T, s subject) {
	const mebibyte, pullers = 1 << 20, 50
	looked, exceeded, how := 0, 0, ""
	for _, slow := range []int{0, 8} {
		t.Run(fmt.Sprint(slow, " slow"), func(t *testing.T) {
			needed := modelBytes + slow*s.slowBytes
			b := s.start(t, needs{memory: needed + 48*mebibyte})
			idle := 0
			if runtime.GOOS == "linux" {
				idle = b.proc.Memory(t, "VmRSS")
			}
			topics := hosts.TopicsOf(t, federation)
			publisher := mqtttest.Dial(t, b.as(anyOne(0)))
			ref := retain(t, publisher, blobOf(3, modelBytes))
			_ = publisher.Close()
			for i := range slow {
				c := b.connect(t, anyOne(100+i), patience)
				for filters := range slices.Chunk(aheadOf(topics.BlobPart, ref, s.slowBytes), mostAhead) {
					c.Subscribe(1, 0, filters...)
				}
			}
			var all sync.WaitGroup
			for i := range pullers {
				o := b.as(anyOne(1 + i))
				all.Go(func() { wantBlob(t, o, topics, ref, nowhere{}) })
			}
			all.Wait()
			if runtime.GOOS != "linux" || racing {
				return
			}
			peak, most := b.proc.Memory(t, "VmHWM"), idle+needed+80*mebibyte
			t.Logf("model %d MiB, idle %d MiB, peak %d MiB, bound %d MiB", modelBytes/mebibyte, idle/mebibyte,
				peak/mebibyte, most/mebibyte)
			looked, how = looked+1, b.limited
			if peak > most {
				exceeded++
			}
		})
	}
	switch {
	case looked == 2 && exceeded == 0:
		s.saw(t, bounded, yes+how)
	case looked == 2:
		s.saw(t, bounded, no)
	}
}

// logMemory logs the broker's peak memory on systems that report it.
func (b *broker) logMemory(t *testing.T) {
	t.Helper()
	if runtime.GOOS == "linux" {
		t.Logf("the broker needed %d MiB", b.proc.Memory(t, "VmHWM")>>20)
	}
}

// mostAhead is the number of different filters that aheadOf uses, because each broker allows a client at least that
// many subscriptions. A repeated subscription delivers the retained message again.
const mostAhead = 100

// aheadOf returns filters for chunks of the blob ref with a total size of about bytes. This is the amount that may be
// queued for one client. Some filters occur repeatedly.
func aheadOf(topic func(hash, part string) string, ref wire.BlobRef, bytes int) (filters []string) {
	for k := range min(bytes/(wire.MaxChunkBytes+200), wire.ChunkCount(int(ref.Length))) {
		filters = append(filters, topic(ref.Hash.TopicLevel(), transfer.ChunkPartName(k%mostAhead)))
	}
	return filters
}
