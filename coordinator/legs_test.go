package coordinator_test

import (
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/internal/testkit/memory"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// TestLegs checks that a round takes as many sequential legs as docs/PROTOCOL.md states. A leg is a message between a
// client and the broker. A message to another client takes two legs, as does a subscription that returns a retained
// message. In this test only messages take time.
func TestLegs(t *testing.T) {
	const leg = 50 * time.Millisecond
	for _, tt := range []struct {
		name   string
		hidden []uint32 // hidden layers of a network with 3 inputs and 1 output
		legs   int
	}{
		{"inline", nil, 4},
		{"in 1 chunk", []uint32{120, 120}, 6},
		{"in 4 chunks", []uint32{240, 240}, 6},
		{"in 5 chunks, of which one waits for credit", []uint32{270, 270}, 10},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFederation(t, 4, memory.Options{Delay: func(string) time.Duration { return 2 * leg }})
				f.cfg.Task.Model.HiddenUnits, f.cfg.Task.Training.StepSize = tt.hidden, 1e-4
				f.cfg.Round.MaxAggregations = 3
				quick(f)
				f.start()
				f.finished(time.Hour)
				for _, c := range events[round.RoundClosed](f) {
					if want := time.Duration(tt.legs) * leg; c.RoundDuration != want {
						t.Errorf("round %d took %v, want %v: %d legs", c.Round, c.RoundDuration, want, tt.legs)
					}
				}
			})
		})
	}
}

// countedConn counts the messages on a connection.
type countedConn struct {
	mqtt.Conn
	f          *federation
	mu         sync.Mutex
	said       map[wire.MessageType]int
	subscribed map[string]int
}

func (c *countedConn) Publish(m mqtt.Message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, err := c.f.reveal(m); err == nil {
		c.said[e.Type]++
	}
	return c.Conn.Publish(m)
}

func (c *countedConn) Subscribe(qos mqtt.QoS, filters ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range filters {
		c.subscribed[f]++
	}
	c.Conn.Subscribe(qos, filters...)
}

// TestMessages checks the number of messages in a round. In a fast round an agent receives the announcement and the
// acceptance, and sends its update. No invitation may arrive before the announcement of a large model, because all
// agents would then subscribe again.
func TestMessages(t *testing.T) {
	const agents, rounds = 4, 5
	for _, tt := range []struct {
		name    string
		make    func(t *testing.T) *federation
		invited int // number of invitations received
	}{
		{"named", func(t *testing.T) *federation { return newFederation(t, agents, memory.Options{}) }, 0},
		{"invited", func(t *testing.T) *federation { return newMixing(t, agents, 2, nil) }, agents * rounds},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := tt.make(t)
				f.cfg.Task.Model.HiddenUnits, f.cfg.Task.Training.StepSize = []uint32{120, 120}, 1e-4
				f.cfg.Round.MaxAggregations = rounds
				quick(f)
				all, connect := map[string]*countedConn{}, f.connect
				f.connect = func(clientID string, will func() mqtt.Message) mqtt.Conn {
					all[clientID] = &countedConn{Conn: connect(clientID, will), f: f, said: map[wire.MessageType]int{},
						subscribed: map[string]int{}}
					return all[clientID]
				}
				f.start()
				f.finished(time.Hour)
				f.stop() // stop the processes before reading the counts
				for _, id := range slices.Sorted(maps.Keys(all)) {
					c := all[id]
					if n := c.subscribed[f.topics.Announcement()]; n != 1 {
						t.Errorf("%s: subscribed to announcements %d times", id, n)
					}
					if id == f.topics.ClientID(wire.CoordinatorID) {
						// The two further announcements are for the phases gathering and finished.
						if n := c.said[wire.TypeAnnouncement]; n != rounds+2 {
							t.Errorf("%d announcements", n)
						}
						if n := c.said[wire.TypeInvitation]; n != tt.invited {
							t.Errorf("%d invitations, want %d", n, tt.invited)
						}
						continue
					}
					if tt.invited > 0 {
						continue
					}
					if n := c.said[wire.TypeInvitationAccepted]; n != 0 {
						t.Errorf("%s said joined %d times", id, n)
					}
					if n := c.said[wire.TypeUpdate]; n != rounds {
						t.Errorf("%s offered %d updates", id, n)
					}
				}
			})
		})
	}
}

// quick configures a federation in which only messages take time.
func quick(f *federation) {
	f.cfg.Standardize, f.cfg.MaxBufferedUpdateBytes = false, 16<<20
	for _, a := range f.agents {
		a.cfg.Training.DeclaredStepTime = 0
	}
}
