package bench

import (
	"crypto/ed25519"
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

// sign does what a round of ours signs and verifies, and nothing else. Each agent verifies the announcement; an
// invitation, its answer, the update, the update's answer and, unless the update is inline, a credit are signed at one
// end and verified at the other.
func sign(n int, payload []byte) (s sample) {
	public, key, _ := ed25519.GenerateKey(nil)
	header := make([]byte, wire.HeaderSize)
	sealed := 4
	if len(payload) > wire.MaxInlineBlobBytes {
		sealed = 5
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
	s.cpu = meter{}.now() - used
	return s
}
