package host

import (
	"errors"
	"testing"

	"github.com/fedmesh/fedmesh/observe"
)

// lastEvent is an observer that records the most recent event.
type lastEvent struct{ observe.Event }

func (l *lastEvent) Observe(e observe.Event) { l.Event = e }

// TestWriteFailures checks that one event is emitted when a write starts to fail, and one event when all writes succeed
// again.
func TestWriteFailures(t *testing.T) {
	var x WriteFailures
	full := errors.New("full")
	for i, step := range []struct {
		purpose     string
		err         error
		began, over bool
	}{
		{"a", nil, false, false},
		{"a", full, true, false},
		{"a", full, false, false},
		{"b", full, true, false},
		{"c", nil, false, false},
		{"a", nil, false, false},
		{"b", nil, false, true},
		{"b", nil, false, false},
		{"a", full, true, false},
		{"a", nil, false, true},
	} {
		var l lastEvent
		x.ReportWriteResult(&l, step.purpose, step.err)
		_, began := l.Event.(StorageFailing)
		if _, over := l.Event.(StorageRecovered); began != step.began || over != step.over {
			t.Errorf("step %d: began %v, over %v, want %v, %v", i, began, over, step.began, step.over)
		}
	}
}
