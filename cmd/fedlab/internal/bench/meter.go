package bench

import (
	"crypto/ed25519"
	"crypto/sha256"
	"fmt"
	"os"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// meter reads the processor time of this process and of a broker beside it.
type meter struct{ broker int } // process id, 0 for none

func (m meter) now() time.Duration {
	used := processorTime()
	var theirs int64 // in nanoseconds
	if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", m.broker)); err == nil && m.broker != 0 {
		_, _ = fmt.Sscan(string(text), &theirs)
	}
	return used + time.Duration(theirs)
}

// alone does what a round of ours signs, verifies and hashes, and nothing
// else, and returns the processor time of it. Each agent verifies the
// announcement, seals its update and verifies the answers; the coordinator does
// the other half.
func alone(n int, payload []byte) (signatures, hashes time.Duration) {
	public, key, _ := ed25519.GenerateKey(nil)
	header := payload[:min(len(payload), wire.HeaderSize)]
	// of an inline vector: out, the body, the reference and the blob; back, the body twice, and the whole twice
	sealed, passes := 2, 7
	if len(payload) > wire.MaxInline {
		sealed, passes = 3, 3 // and a credit; each chunk at both ends, and the whole at the coordinator
	}
	used := meter{}.now()
	signature := ed25519.Sign(key, header)
	for range n {
		ed25519.Verify(public, header, signature)
		for range sealed {
			signature = ed25519.Sign(key, header)
			ed25519.Verify(public, header, signature)
		}
	}
	signatures = meter{}.now() - used
	used = meter{}.now()
	for range n*passes + 2 { // and two to publish the model
		sha256.Sum256(payload)
	}
	return signatures, meter{}.now() - used
}
