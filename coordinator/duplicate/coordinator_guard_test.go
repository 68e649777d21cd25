package duplicate

import (
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/wire"
)

// TestPositionBetweenRounds checks that the text of an OutdatedError omits the phase "finished" if the state folder is
// between two rounds.
func TestPositionBetweenRounds(t *testing.T) {
	e := OutdatedError{
		NewestPosition: wire.AnnouncementPosition{Epoch: 1, Run: 7, Round: 9, Attempt: 1, Phase: wire.PhaseIdle},
		OwnPosition:    wire.AnnouncementPosition{Epoch: 1, Run: 7, Round: 3, Attempt: 2, Phase: wire.PhaseFinished}}
	if got := e.Error(); !strings.Contains(got, "round 9 attempt 1 idle") ||
		!strings.HasSuffix(got, "this folder is at epoch 1 run 7 round 3 attempt 2") {
		t.Error(got)
	}
}
