package agent_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/wire"
)

// FuzzCoordinator sends arbitrary messages that the coordinator has signed, both to all agents and to one agent, before
// and after the first announcement. After the first announcement, messages to one agent are encrypted if their type
// requires this. The agent must still follow the next valid announcement.
func FuzzCoordinator(f *testing.F) {
	for t := range uint8(wire.TypeRenewalAnswer) {
		f.Add(t, make([]byte, 60))
	}
	f.Add(uint8(wire.TypeInvitation-1), (&wire.Invitation{Agent: "press", StepSizeWeight: 1,
		MustSendUpdate: true}).Body())
	f.Fuzz(func(t *testing.T, typ uint8, body []byte) {
		synctest.Test(t, func(t *testing.T) {
			s := newScene(t)
			s.start()
			kind := wire.MessageType(typ%uint8(wire.TypeRenewalAnswer) + 1)
			p := s.sign(s.header(kind, 1), body)
			s.send(s.topics.Announcement(), p)
			s.send(s.topics.CoordinatorToAgent("press"), p)
			wait(time.Hour)
			s.announce(2, s.training(taskOf("first"), 0, 0)) // The agent needs its key to decrypt p.
			s.direct(kind, 2, body)
			wait(time.Hour)
			s.run++ // The run is later than any run announced before.
			s.announce(3, s.training(taskOf("next"), 0, 0))
			wait(time.Hour)
			obeyed := eventsOf[agentround.AnnouncementObeyed](s)
			if len(obeyed) == 0 || obeyed[len(obeyed)-1].Position.Run != s.run {
				t.Errorf("after %v %x it obeys %+v", kind, body, obeyed)
			}
		})
	})
}
