package coordinator_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/agent/presence"
	"github.com/fedmesh/fedmesh/coordinator/devices"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/internal/testkit/memory"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// persistent makes all connections reconnect automatically within the session expiry, even if another client uses the
// same client id.
func persistent(f *federation) {
	r := rand.New(rand.NewPCG(3, 4))
	back := func() time.Duration { return time.Duration(r.Int64N(int64(16 * time.Second))) }
	f.connect = func(clientID string, will func() mqtt.Message) mqtt.Conn {
		if will == nil {
			will = func() mqtt.Message { return mqtt.Message{Topic: "nobody/reads/this"} }
		}
		return f.broker.Session(clientID, will, back)
	}
}

// endless returns a federation of three agents with unlimited rounds, one every five minutes. A round needs only two
// agents.
func endless(t *testing.T) *federation {
	f := newFederation(t, 3, memory.Options{})
	persistent(f)
	r := &f.cfg.Round
	r.MaxAggregations, r.Quorum, r.RoundTimeout, r.PauseBetweenRounds = 0, 2, 2*time.Minute, 3*time.Minute
	r.Gather = round.GatherConfig{TargetAgents: 3, MinAgents: 2, WindowLength: 30 * time.Second,
		HelloSpread: time.Second}
	return f
}

func closedRounds(f *federation, n int) func() bool {
	return func() bool { return len(events[round.RoundClosed](f)) >= n }
}

// smaller, middle and larger are seeds of random generators whose first nonces are in ascending order.
const smaller, middle, larger = 5, 2, 7

// TestClones checks that two devices with one identity (clones) are detected, for all combinations of boot counters and
// nonces. Both devices and the coordinator report the clone. The devices do not keep disconnecting each other, and one
// of them continues to work.
func TestClones(t *testing.T) {
	for i, c := range []struct {
		boots [2]wire.Epoch
		seed  uint64 // seed of the second device
	}{{[2]wire.Epoch{1, 1}, smaller}, {[2]wire.Epoch{1, 1}, larger}, {[2]wire.Epoch{1, 5}, smaller},
		{[2]wire.Epoch{5, 1}, larger}} {
		if i%2 == 1 && testing.Short() {
			continue
		}
		boots := c.boots
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := endless(t)
				first := f.agents[0]
				first.boot, first.cfg.Rand = boots[0]-1, rand.New(rand.NewPCG(middle, 7))
				f.start()
				f.until(12*time.Hour, "rounds before the clone comes", closedRounds(f, 30))
				second := *first
				second.life, second.dir, second.boot = nil, t.TempDir(), boots[1]-1
				second.cfg.Rand = rand.New(rand.NewPCG(c.seed, 7))
				f.agents = append(f.agents, &second)
				ups := len(events[host.BrokerLinkChanged](f, "a0"))
				second.start()
				wait(5 * time.Minute)
				settled := len(events[round.RoundClosed](f))
				wait(2 * time.Hour)

				told := events[devices.CloneSeen](f)
				if len(told) < 1 || len(told) > 2 {
					t.Errorf("the coordinator told of clones %d times in 2 hours", len(told))
				}
				for _, c := range told {
					if c.Agent != "a0" || c.Nonces[0] == c.Nonces[1] || c.BootEpochs != boots &&
						c.BootEpochs != [2]wire.Epoch{boots[1], boots[0]} {
						t.Errorf("the coordinator told of %+v", c)
					}
				}
				tellers, leavers := map[uint64]bool{}, map[uint64]bool{}
				for _, c := range events[presence.CloneSeen](f, "a0") {
					tellers[c.Nonce] = true
					if c.DisconnectDuration > 0 {
						leavers[c.Nonce] = true
					}
					if c.Nonce == c.OtherNonce || [2]wire.Epoch{c.Boot, c.OtherBoot} != boots &&
						[2]wire.Epoch{c.OtherBoot, c.Boot} != boots {
						t.Errorf("an agent told of %+v", c)
					}
				}
				if len(tellers) != 2 || len(leavers) != 1 {
					t.Errorf("%d of the two told of the other, %d left the broker; want 2 and 1", len(tellers),
						len(leavers))
				}
				if changes := len(events[host.BrokerLinkChanged](f, "a0")) - ups; changes > 50 {
					t.Errorf("%d changes of the link in 2 hours: they fight", changes)
				}
				rounds := events[round.RoundClosed](f)
				full := 0
				for _, r := range rounds[settled : settled+12] { // rounds of more than an hour
					if r.AcceptedUpdates == 3 {
						full++
					}
				}
				if full < 10 {
					t.Errorf("a0 had a part in %d of the next 12 rounds, want 10", full)
				}
			})
		})
	}
}

// TestNoClones checks that restarts, lost connections, broker crashes and a broker that has lost recent messages are
// not reported as clones.
func TestNoClones(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := endless(t)
		s := newStranger(f)
		f.start()
		f.until(time.Hour, "rounds", closedRounds(f, 2))
		a := f.agents[0]
		client := f.topics.ClientID(a.id)
		s.listen()
		old := s.last(f.topics.Presence(a.id), wire.TypePresence)
		for i := range 12 {
			switch i % 4 {
			case 0:
				a.stop()
				a.start()
			case 1:
				a.kill()
				a.again()
			case 2:
				f.broker.Disconnect(client)
			case 3: // the broker crashed and delivers an old message of an earlier boot
				f.broker.Disconnect(client)
				if err := s.conn.Publish(mqtt.Message{Topic: f.topics.Presence(a.id), Payload: old, Retained: true,
					QoS: mqtt.AtLeastOnce}); err != nil {
					t.Error(err)
				}
			}
			wait(7 * time.Minute)
			s.listen()
		}
		f.coord.kill()
		f.coord.again()
		wait(time.Hour)
		if seen := events[devices.CloneSeen](f); len(seen) > 0 {
			t.Errorf("the coordinator tells of clones: %+v", seen)
		}
		if seen := events[presence.CloneSeen](f); len(seen) > 0 {
			t.Errorf("agents tell of clones: %+v", seen)
		}
	})
}
