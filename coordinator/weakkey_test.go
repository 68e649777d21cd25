package coordinator_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/wire"
)

// TestWeakPeerKey checks that a device with a peer key of small order is rejected, because its neighbours could not
// encrypt messages to it.
func TestWeakPeerKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newMixing(t, 4, 4, nil)
		f.enrol("weak")
		f.cfg.Standardize, f.cfg.Round.MaxAggregations, f.cfg.Task.Training.StepSize = false, 1, 1e-5
		f.cfg.Round.Gather.TargetAgents, f.cfg.Round.Gather.MinAgents, f.cfg.Round.RoundTimeout = 5, 4, time.Minute
		s := newStranger(f)
		f.start()
		s.listen()
		h := wire.Hello{FollowedAnnouncement: s.open.Digest(), Samples: 10, PeerKey: wire.X25519PublicKey{1}}
		s.say(f.topics.AgentToCoordinator("weak"), sealFor(s.ann.SealPublicKey, s.as("weak", wire.TypeHello), h.Body()))
		f.finished(time.Hour)
		for _, x := range events[agentround.WorkEnded](f) {
			if x.Result == agentround.WorkDeclined {
				t.Errorf("an agent declines round %d: %s", x.Round, x.DeclineReason)
			}
		}
		if got := f.verdicts(); !slices.Equal(got, []string{"dropped: malformed"}) {
			t.Errorf("verdicts %q", got)
		}
	})
}
