package transfer

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// middle is a random source with which every random delay has its mean value.
type middle struct{}

func (middle) Uint64() uint64 { return 1<<63 + 1<<24 }

func unjittered() *rand.Rand { return rand.New(middle{}) }

func seeded(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

// blobOf returns n bytes that are different for each seed.
func blobOf(seed uint64, n int) []byte {
	rng := seeded(seed)
	p := make([]byte, n)
	for i := 0; i < n; i += 8 {
		for j, x := i, rng.Uint64(); j < min(i+8, n); j, x = j+1, x>>8 {
			p[j] = byte(x)
		}
	}
	return p
}

func manifestOf(p []byte) wire.Manifest {
	m, err := wire.NewManifest(p, wire.Digest{})
	if err != nil {
		panic(err)
	}
	return m
}

// published returns the reference and the retained messages of a blob.
func published(t testing.TB, blob []byte) (wire.BlobRef, map[string][]byte) {
	t.Helper()
	ref, parts, err := BlobMessages(blob, wire.Digest{})
	if err != nil {
		t.Fatal(err)
	}
	retained := map[string][]byte{}
	for name, message := range parts {
		retained[name] = message
	}
	return ref, retained
}

type machine[E, F any] interface {
	Step(time.Time, E) []F
	Deadline() (time.Time, bool)
}

// step is one line of a test script. The times at and next are relative to epoch; next is "" if the machine needs no
// Tick.
type step[E any] struct {
	at   string
	ev   E
	want string
	next string
}

// play runs a script and compares each line with the behaviour of the machine.
func play[E, F any](t *testing.T, m machine[E, F], script []step[E]) {
	t.Helper()
	for i, line := range script {
		d, err := time.ParseDuration(line.at)
		if err != nil {
			t.Fatal(err)
		}
		got := describe(m.Step(epoch.Add(d), line.ev))
		next := ""
		if at, ok := m.Deadline(); ok {
			next = at.Sub(epoch).String()
		}
		if got != line.want || next != line.next {
			t.Fatalf("line %d, %T at %s:\n got %q, next %q\nwant %q, next %q", i, line.ev, line.at, got, next,
				line.want, line.next)
		}
	}
}

// opening is a BlobPuller or UpdateReceiver whose host answers OpenStorage immediately with a memory storage.
type opening[E, F any] struct {
	machine[E, F]
	opened func(StorageOpened) E
}

func openingPuller(p *BlobPuller) opening[PullEvent, PullEffect] {
	return opening[PullEvent, PullEffect]{p, func(o StorageOpened) PullEvent { return o }}
}

func openingReceiver(r *UpdateReceiver) opening[ReceiveEvent, ReceiveEffect] {
	return opening[ReceiveEvent, ReceiveEffect]{r, func(o StorageOpened) ReceiveEvent { return o }}
}

func (h opening[E, F]) Step(now time.Time, ev E) []F {
	var all []F
	for _, e := range h.machine.Step(now, ev) {
		if o, ok := any(e).(OpenStorage); ok {
			all = append(all, h.Step(now,
				h.opened(StorageOpened{o.Agent, o.Manifest.Hash, NewMemoryChunkStorage(int(o.Manifest.BlobLength)),
					nil}))...)
		} else {
			all = append(all, e)
		}
	}
	return all
}

// bytesOf returns the content of a storage.
func bytesOf(s ChunkStorage) []byte {
	if h, ok := s.(*handle); ok {
		return h.whole()
	}
	return bytes.Join(s.(*MemoryChunkStorage).ChunkPayloads(), nil)
}

func describe[F any](effects []F) string {
	var words []string
	for _, e := range effects {
		words = append(words, describeOne(e))
	}
	return strings.Join(words, "; ")
}

func describeOne(e any) string {
	switch e := e.(type) {
	case SubscribeParts:
		return "sub " + strings.Join(e.Parts, " ")
	case UnsubscribeParts:
		return "unsub " + strings.Join(e.Parts, " ")
	case PartsMissing:
		return fmt.Sprintf("lacking %v %v", e.ManifestMissing, e.Chunks)
	case PullDone:
		return fmt.Sprintf("done %d", len(bytesOf(e.Storage)))
	case PullFailed:
		return "failed " + failure(e.Err)
	case SendManifest:
		if e.UnsolicitedChunks > 0 {
			return fmt.Sprintf("manifest +%d", e.UnsolicitedChunks)
		}
		return "manifest"
	case SendChunk:
		return fmt.Sprintf("chunk %d", e.ChunkIndex)
	case UploadFinished:
		if e.IsAccepted {
			return "accepted"
		}
		return "refused " + e.RefusalReason.String()
	case GrantCredit:
		ranges := ""
		for _, c := range e.Credit.Chunks {
			ranges += fmt.Sprintf(" %d-%d", c.First, c.Last)
		}
		return fmt.Sprintf("grant %s%s for %dms", e.Agent, ranges, e.Credit.LeaseMillis)
	case UpdateComplete:
		return fmt.Sprintf("complete %s %d", e.Agent, len(bytesOf(e.Storage)))
	case OpenStorage:
		return strings.TrimSpace(fmt.Sprintf("open %d %s", e.Manifest.BlobLength, e.Agent))
	case StorageFailed:
		return strings.TrimSpace("unstored " + string(e.Agent))
	case RefuseUpdate:
		return fmt.Sprintf("refuse %s %s", e.Agent, e.Reason)
	}
	return fmt.Sprintf("unknown %T", e)
}

func failure(err error) string {
	for name, is := range map[string]error{"gone": ErrBlobGone, "corrupt": ErrBlobCorrupt, "too large": ErrBlobTooLarge,
		"unstored": ErrStorageFailed} {
		if errors.Is(err, is) {
			return name
		}
	}
	return err.Error()
}

func digestOf(p []byte) wire.Digest { return sha256.Sum256(p) }
