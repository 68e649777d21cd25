package coordinator_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/coordinator/enrolled"
	"github.com/fedmesh/fedmesh/internal/testkit/hosts"
	"github.com/fedmesh/fedmesh/internal/testkit/memory"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/wire"
)

// crowd connects n agents whose data do not fit the task. It returns the number of announcements that contain the
// model, and the number of announcements without the model.
func (f *federation) crowd(n int) (held, pulled int) {
	conn := f.broker.Connect("crowd", nil)
	defer conn.Close()
	conn.Subscribe(mqtt.AtMostOnce, f.topics.Announcement())
	for e := range conn.Events() {
		m, is := e.(mqtt.MessageReceived)
		if !is || len(m.Payload) == 0 {
			continue
		}
		opened, err := wire.ParseEnvelope(m.Payload)
		if err != nil {
			f.t.Error(err)
			return held, pulled
		}
		a, err := wire.DecodeAnnouncement(opened.Body)
		if err != nil {
			f.t.Error(err)
			return held, pulled
		}
		switch {
		case len(a.BaseModel.Inline) > 0 || len(a.BaseModel.SealedInline) > 0:
			held++
		case a.BaseModel.IsSet():
			pulled++
		}
		if a.Phase == wire.PhaseFinished {
			return held, pulled
		}
		for k := range n {
			id := crowdID(k)
			h := wire.Header{Type: wire.TypeHello, Federation: fedName, Sender: id, Epoch: 1, Run: opened.Run,
				Round: opened.Round, Sequence: uint64(held + pulled), Root: wire.FirstRootVersion}
			hello := wire.Hello{InstanceNonce: 1, FollowedAnnouncement: opened.Digest(),
				UnfitReason: wire.DeclineBadData}
			_ = conn.Publish(mqtt.Message{Topic: f.topics.AgentToCoordinator(id),
				Payload: sealFor(a.SealPublicKey, h, hello.Body())})
		}
		n = 0 // send the hellos only once
	}
	return held, pulled
}

func crowdID(k int) wire.AgentID { return wire.AgentID(fmt.Sprintf("crowd%d", k)) }

// TestLeanAnnouncements checks that a model of 46 kB is sent inside the announcement to 2 agents. With 2,200 more
// agents, announcements would need 100 MB each, so the agents must download the model instead. Both runs must yield the
// same model.
func TestLeanAnnouncements(t *testing.T) {
	var models []wire.Digest
	for _, n := range []int{0, 2200} {
		synctest.Test(t, func(t *testing.T) {
			f := newFederation(t, 2, memory.Options{MailboxMessages: 1 << 13, MailboxBytes: 1 << 26})
			f.cfg.Task.Model.HiddenUnits, f.cfg.Task.Training.StepSize = []uint32{100, 110}, 0.01
			f.cfg.Round.MaxAggregations, f.cfg.Standardize = 3, false
			f.cfg.Round.PauseBetweenRounds = time.Minute
			for k := range n {
				f.keys[crowdID(k)] = hosts.PublicOf(crowdID(k))
			}
			f.cfg.Agents = enrolled.NewListFromKeys(f.keys)
			counts := make(chan [2]int, 1)
			go func() {
				held, pulled := f.crowd(n)
				counts <- [2]int{held, pulled}
			}()
			f.start()
			models = append(models, f.finished(time.Hour))
			got := <-counts
			if held, pulled := got[0], got[1]; n == 0 && pulled > 0 || n > 0 && (pulled < 5 || held > 2) {
				t.Errorf("with %d more agents %d announcements hold the model, and %d do not", n, held, pulled)
			}
		})
	}
	if models[0] != models[1] {
		t.Errorf("models %x and %x", models[0], models[1])
	}
}
