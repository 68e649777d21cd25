package coordinator_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/agent/training"
	"github.com/fedmesh/fedmesh/internal/testkit/memory"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// uplink is a connection that transmits messages one after another at a limited rate.
type uplink struct {
	mqtt.Conn
	rate int // transmission rate in bytes per second

	mu   sync.Mutex
	free time.Time // time at which all queued messages have been transmitted
	sent *int      // total number of transmitted bytes, guarded by mu
}

func (u *uplink) Publish(m mqtt.Message) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	bytes := len(m.Topic) + len(m.Payload)
	*u.sent += bytes
	if now := time.Now(); u.free.Before(now) {
		u.free = now
	}
	u.free = u.free.Add(time.Duration(bytes) * time.Second / time.Duration(u.rate))
	time.AfterFunc(time.Until(u.free), func() { _ = u.Conn.Publish(m) }) // ignore errors: a down link loses messages
	return nil
}

// slowUploads runs a round of three agents with updates of 268 kB in five chunks. Each uplink transmits 100 kB/s, while
// the agents assume the default of 20 kB/s. slowUploads calls disturb when the first agent has trained. It returns the
// time from then to the end of the round, and the number of bytes sent by a0.
func slowUploads(t *testing.T, disturb func(f *federation)) (took time.Duration, sent int) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, 3, memory.Options{})
		f.cfg.Standardize, f.cfg.Round.MaxAggregations, f.cfg.MaxBufferedUpdateBytes = false, 1, 16<<20
		f.cfg.Task.Model.HiddenUnits, f.cfg.Task.Training.StepSize = []uint32{256, 256}, 0.001
		connect, links := f.connect, map[string]*uplink{}
		f.connect = func(clientID string, will func() mqtt.Message) mqtt.Conn {
			if clientID == f.topics.ClientID(wire.CoordinatorID) {
				return connect(clientID, will)
			}
			u := &uplink{Conn: connect(clientID, will), rate: 100_000, sent: new(int)}
			links[clientID] = u
			return u
		}
		for _, a := range f.agents {
			a.cfg.MinUplinkRate, a.cfg.Training.DeclaredStepTime = 20_000, 100*time.Millisecond
		}
		trained := make(chan struct{}, 1)
		f.agents[0].moment = func(m any) {
			if _, ok := m.(training.LocalTrainingFinished); ok {
				trained <- struct{}{}
			}
		}
		f.start()
		<-trained
		began := time.Now()
		disturb(f)
		f.until(time.Hour, "closed", func() bool { return len(events[round.RoundClosed](f)) > 0 })
		took = time.Since(began)
		f.finished(time.Hour)
		f.checkOnce("slow uploads")
		u := links[f.topics.ClientID("a0")]
		u.mu.Lock()
		defer u.mu.Unlock()
		sent = *u.sent
	})
	return took, sent
}

// TestRestartDuringSlowUploads checks that a restart of the coordinator during slow uploads costs only the time of the
// repeated bytes. Credit that the previous process granted for sending chunks is ignored.
func TestRestartDuringSlowUploads(t *testing.T) {
	alone, bytes := slowUploads(t, func(*federation) {})
	const lost = 2680 * time.Millisecond // transmission time of an update at 100 kB/s
	for _, after := range []time.Duration{100, 700, 1300, 1900, 2500} {
		for _, down := range []time.Duration{0, 500} {
			after, down := after*time.Millisecond, down*time.Millisecond
			took, sent := slowUploads(t, func(f *federation) {
				wait(after)
				f.coord.kill()
				wait(down)
				f.coord.again()
			})
			if later := took - alone - down; later > 3*time.Second {
				t.Errorf("restart after %v, away for %v: the round closes %v later than without, want at most 3s",
					after, down, later)
			} else if later > lost+300*time.Millisecond {
				t.Logf("restart after %v, away for %v: %v later", after, down, later)
			}
			if sent > 2*bytes {
				t.Errorf("restart after %v, away for %v: %d bytes were sent, without it %d", after, down, sent, bytes)
			}
		}
	}
}

// TestInvitedDuringUpload checks that an agent which sends a hello during its upload is invited again and does not send
// its chunks again.
func TestInvitedDuringUpload(t *testing.T) {
	alone, bytes := slowUploads(t, func(*federation) {})
	for _, after := range []time.Duration{50, 1000, 2600} {
		took, sent := slowUploads(t, func(f *federation) {
			wait(after * time.Millisecond)
			other := f.broker.Connect("other", nil)
			defer other.Close()
			if err := other.Publish(f.invitation("a0")); err != nil {
				t.Error(err)
			}
		})
		if took > alone+20*time.Millisecond || sent > bytes+1000 { // the agent also sends a joined message
			t.Errorf("invited after %v: closed after %v with %d bytes sent, undisturbed after %v with %d",
				after*time.Millisecond, took, sent, alone, bytes)
		}
	}
}

// invitation returns an invitation for an agent to the retained announcement.
func (f *federation) invitation(id wire.AgentID) mqtt.Message {
	reader := f.broker.Connect("reader", nil)
	defer reader.Close()
	reader.Subscribe(mqtt.AtMostOnce, f.topics.Announcement())
	for e := range reader.Events() {
		r, ok := e.(mqtt.MessageReceived)
		if !ok {
			continue
		}
		e, err := wire.ParseEnvelope(r.Payload)
		if err != nil {
			f.t.Error(err)
		}
		m := wire.Invitation{Agent: id, Announcement: e.Digest(), RemainingMillis: 60_000, StepSizeWeight: 1,
			MustSendUpdate: true}
		h := e.Header
		h.Type, h.Sequence = wire.TypeInvitation, 1<<40
		return mqtt.Message{Topic: f.topics.CoordinatorToAgent(id), Payload: wire.SignEnvelope(nil, h, m.Body(),
			f.coord.key)}
	}
	return mqtt.Message{}
}
