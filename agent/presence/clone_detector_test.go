package presence

import (
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// TestTwinSighted checks which sequences of presence messages prove that a clone (a second device with the same
// identity) is running.
func TestTwinSighted(t *testing.T) {
	type word struct {
		link     int
		epoch    wire.Epoch
		sequence uint64
		alive    bool
	}
	for name, words := range map[string][]word{
		"an earlier start, and its late will": {{1, 4, 10, false}, {1, 4, 12, false}, {2, 4, 12, false}},
		"a broker brings old words back": {{1, 4, 12, false}, {2, 4, 10, false}, {3, 4, 12, false},
			{4, 3, 50, false}},
		"a folder that was lost":    {{1, 9, 100, false}, {2, 9, 100, false}},
		"a clone of an older start": {{1, 4, 10, false}, {2, 4, 20, true}, {3, 4, 30, true}, {3, 4, 31, false}},
		"a clone that comes later":  {{5, 6, 1, false}, {6, 6, 2, true}},
		"a clone that restarts":     {{1, 6, 90, false}, {2, 7, 1, true}},
	} {
		var w cloneDetector
		for i, x := range words {
			for w.linkNumber < x.link {
				w.recordLinkUp()
			}
			if got := w.detectClone(x.epoch, x.sequence); got != x.alive {
				t.Errorf("%s: word %d is a clone's: %v", name, i, got)
			}
		}
	}
}

// TestTwinPauses checks that the disconnections caused by a clone grow up to one hour, and start at the minimum again
// after a connection without a clone.
func TestTwinPauses(t *testing.T) {
	var w cloneDetector
	for _, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		w.recordLinkUp()
		w.isCloneOnLink = true
		if got := w.nextClonePause(); got != want*time.Minute {
			t.Errorf("a pause of %v, want %v", got, want*time.Minute)
		}
		w.recordLinkDown()
	}
	w.recordLinkUp()
	w.recordLinkDown()
	if got := w.nextClonePause(); got != time.Minute {
		t.Errorf("a pause of %v, want 1m", got)
	}
}
