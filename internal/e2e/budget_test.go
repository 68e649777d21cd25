package e2e

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
	"github.com/fedmesh/fedmesh/store"
)

// TestBudget checks an agent whose monthly budget of bytes is nearly used up.
func TestBudget(t *testing.T) {
	t.Parallel()
	f := newFederation(t, brokers.OpenMosquitto(t))
	f.lead(t, f.AddAgent(t, "one", plane(60)),
		`{participants: 1, quorum: 1, gather: {minimum: 1, within: 2s, spread: 10ms}}`)
	now := time.Now()
	used := binary.LittleEndian.AppendUint32(nil, uint32(now.Year()*12+int(now.Month())-1))
	used = binary.LittleEndian.AppendUint64(used, 19_985_000)
	if err := os.MkdirAll(f.Path("state-one"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := store.LocalDisk.SaveRecord(filepath.Join(f.Path("state-one"), "budget"), 1, used); err != nil {
		t.Fatal(err)
	}
	lead := f.Daemon(t, "coordinator", "coordinator")
	one := f.Daemon(t, "agentd", "one", "--set", "budget.bytes_per_month=20MB")
	one.Await(t, "remaining traffic budget is too small for a round")
	lead.Await(t, "agent cannot perform the task agent=one reason=budget")
	for _, p := range []*testkit.Process{one, lead} {
		p.Stop(t, syscall.SIGTERM, 0)
	}
}
