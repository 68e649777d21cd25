package external_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/agent/external"
)

// has makes the program report additional rows, one row per byte of more.
func (d *device) has(more string) {
	d.Helper()
	if err := os.WriteFile(d.good, []byte(more), 0o600); err != nil {
		d.Fatal(err)
	}
}

// starts returns the number of ProgramStarted events that were reported.
func (d *device) starts() (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, f := range d.events {
		if _, began := f.(external.ProgramStarted); began {
			n++
		}
	}
	return n
}

// TestRows checks that an agent that checks for new rows receives the program's new number of rows. If the program does
// not report a number, the previous number must remain. A program that has ended must be restarted.
func TestRows(t *testing.T) {
	for mode, want := range map[string]struct{ rows, ends int }{
		"": {43, 0}, "counts when it fits": {40, 0}, "rows are away": {40, 0}, "rows are lost": {40, 1},
		"ends when asked": {40, 1},
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			d := newDevice(t, mode, time.Minute, nil)
			if !d.rows.Changed() || d.starts() != 0 {
				t.Error("before the first snapshot nothing has changed, or the program is there already")
			}
			if _, err := d.rows.Snapshot(); err != nil {
				t.Fatal(err)
			}
			if d.rows.Changed() {
				t.Error("as many rows as before are a change")
			}
			d.has("new")
			if changed := d.rows.Changed(); changed != (want.rows > 40) || d.ends() != want.ends {
				t.Errorf("changed: %v; the program has exited %d times, want %d", changed, d.ends(), want.ends)
			}
			if view, err := d.rows.Snapshot(); want.ends == 0 && (err != nil || view.Rows.Len() != want.rows) {
				t.Errorf("%d rows, want %d; error %v", view.Rows.Len(), want.rows, err)
			}
			d.has("")
			d.trainer.Hurry()
			if changed := d.rows.Changed(); changed != (want.rows > 40) || d.starts() != want.ends+1 {
				t.Errorf("fewer rows: changed is %v, after %d starts", changed, d.starts())
			}
		})
	}
}

// TestRowsOfBusy checks that the agent does not request the number of rows from a program that is busy.
func TestRowsOfBusy(t *testing.T) {
	t.Parallel() // agentd waits for several seconds in this test.
	d := newDevice(t, "a step crosses stop", time.Minute, nil)
	if _, err := d.rows.Snapshot(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	b, _, x := d.block(ctx, 4)
	ended := make(chan error)
	go func() { ended <- b.TakeSteps(x, 1, 4) }()
	d.called()
	d.has("new")
	if d.rows.Changed() {
		t.Error("it has more rows, though it works")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if !d.rows.Changed() {
		t.Error("it has no more rows, once its work is done")
	}
}
