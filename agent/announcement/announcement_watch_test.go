package announcement_test

import (
	"crypto/ed25519"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/agent/announcement"
	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/hosts"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/wire"
)

// countingConn is a connection that counts subscriptions by filter.
type countingConn struct {
	mqtt.Conn
	subscriptions map[string]int
}

func (c *countingConn) Subscribe(_ mqtt.QoS, filters ...string) {
	for _, f := range filters {
		c.subscriptions[f]++
	}
}

func (*countingConn) Unsubscribe(...string) {}

// run calls the hooks of the part w for the duration d, as an agent does.
func run(w *announcement.AnnouncementWatch, d time.Duration) {
	for end := time.Now().Add(d); ; {
		at, planned := w.Deadline()
		if !planned || at.After(end) {
			<-time.After(time.Until(end))
			return
		}
		<-time.After(time.Until(at))
		w.Tick(time.Now())
	}
}

// TestRequests checks that the agent requests the announcement at growing intervals until an announcement arrives, and
// later only if the coordinator sends another digest. While the uplink budget is spent, the agent must request nothing.
func TestRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, spent := &countingConn{subscriptions: map[string]int{}}, false
		core := &part.AgentCore{Federation: "plant", ID: "press", Topics: hosts.TopicsOf(t, "plant"), Conn: conn,
			Loop: host.NewEventLoop(nil), Rand: rand.New(rand.NewPCG(1, 2)),
			Observer:            testkit.Observer(func(observe.Event) {}),
			IsUplinkBudgetSpent: func() bool { return spent }}
		w := announcement.NewAnnouncementWatch(core, func() []ed25519.PublicKey { return nil })
		requests := func() int { return conn.subscriptions[core.Topics.Announcement()] }
		w.LinkUp()
		run(w, time.Hour)
		// Requests are sent after 0.5, 1.5, 3.5, 7.5, 15.5 minutes, and then every 10 minutes.
		if n := requests(); n < 7 || n > 12 {
			t.Errorf("%d requests in the first hour, want about 10", n)
		}
		before := requests()
		core.LastAnnouncement = agentround.AnnouncementReceived{EnvelopeDigest: wire.Digest{1}}
		w.ReceiveAnnouncement(core.LastAnnouncement)
		w.RequestLostAnnouncement(wire.Digest{1})
		run(w, time.Hour)
		if n := requests() - before; n != 0 {
			t.Errorf("%d requests after the announcement has arrived", n)
		}
		w.RequestLostAnnouncement(wire.Digest{2})
		spent = true
		w.RequestLostAnnouncement(wire.Digest{3})
		if n := requests() - before; n != 1 {
			t.Errorf("%d requests after the coordinator has named two others, with a budget for one", n)
		}
	})
}
