//go:build linux && vm

package external_test

import (
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/agent/external"
	"github.com/fedmesh/fedmesh/observe"
)

// TestCage runs in a machine with control groups of version 2, as a service to which its own is delegated (TestCage of
// internal/testkit/machine). A program has its memory, its processes and no network, and takes all that it has started
// with it, even what has left its group of processes.
func TestCage(t *testing.T) {
	for mode, want := range map[string]string{
		"hog": "has ended", "forks": "processes could be started", "network": "no network",
	} {
		d := newDevice(t, mode, time.Minute, nil)
		d.trainer.Limit(map[string]uint64{"hog": 64 << 20}[mode])
		b, _, x := d.block(t.Context(), 4)
		err := b.TakeSteps(x, 1, 4)
		if started, ok := d.first().(external.ProgramStarted); !ok || started.UnconfinedReason != "" {
			t.Fatalf("%s: the program is not confined: %+v", mode, d.first())
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", mode, err, want)
		}
	}
	takesChildren(t, "escapes")
}

// first is the first event.
func (d *device) first() observe.Event {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.events[0]
}
