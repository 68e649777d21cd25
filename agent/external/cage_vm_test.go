//go:build linux && vm

package external_test

import (
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/agent/external"
	"github.com/fedmesh/fedmesh/observe"
)

// TestCage checks the limits of a sandboxed program: limited memory, a limited number of processes, and no network
// access. When the program ends, its child processes must end too, even if they have left its process group. The test
// runs in a virtual machine with cgroups version 2, as a service with a delegated group (see TestCage in
// internal/testkit/machine).
func TestCage(t *testing.T) {
	for mode, want := range map[string]string{
		"hog": "has exited", "forks": "processes could be started", "network": "no network",
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

// first returns the first event that the device's trainer has reported.
func (d *device) first() observe.Event {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.events[0]
}
