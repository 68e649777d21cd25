package bench

import (
	"crypto/ed25519"
	"fmt"
	"os"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// meter measures the CPU time of this process plus the CPU time of a broker process.
type meter struct{ broker int } // process id of the broker; 0 if there is no broker process

func (m meter) now() time.Duration {
	used := processorTime()
	var theirs int64 // CPU time of the broker process in nanoseconds
	if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", m.broker)); err == nil && m.broker != 0 {
		_, _ = fmt.Sscan(string(text), &theirs)
	}
	return used + time.Duration(theirs)
}

// sign measures the time for all signatures of one round with n agents. Every agent verifies the announcement. In
// addition, four or five messages per agent are signed and verified: the invitation, the reply, the update, the
// acceptance and, for an update in chunks, a credit.
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
