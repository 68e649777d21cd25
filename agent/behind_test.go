package agent_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/fedmesh/fedmesh/agent/presence"
	"github.com/fedmesh/fedmesh/wire"
)

// TestBehind checks the case in which the broker retains a presence message with a boot epoch above the agent's own:
// the agent must end, so that it restarts with a higher epoch. It must end only once, because two clones of a device
// would otherwise keep raising each other's epoch.
func TestBehind(t *testing.T) {
	for _, tt := range []struct {
		name         string
		boot, behind wire.Epoch // boot epoch of this start, and the configured MinLostCounterEpoch
		earlier      wire.Epoch // boot epoch in the presence message that the broker retains
		ends         bool
	}{
		{"an earlier start", 5, 6, 4, false},
		{"a clone's, of the same number", 5, 6, 5, false},
		{"an older copy of the counter", 5, 6, 9, true},
		{"a lost counter, of the second start", 1, 1, 1, true},
		{"a lost counter", 1, 1, 40, true},
		{"raised already", 41, 0, 50, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t)
				s.cfg.BootEpoch, s.cfg.Presence.MinLostCounterEpoch = tt.boot-1, tt.behind
				s.start()
				p := wire.Presence{State: wire.PresenceLost, InstanceNonce: 7, MaxProtocolVersion: 1}
				s.send(s.topics.Presence("press"), wire.SignEnvelope(nil, wire.Header{
					Root: wire.FirstRootVersion,
					Type: wire.TypePresence, Federation: "plant", Sender: "press", Epoch: tt.earlier, Sequence: 3,
				}, p.Body(), s.cfg.Identity.Key))
				select {
				case err := <-s.done:
					behind := (*presence.BootCounterLostError)(nil)
					if !tt.ends || !errors.As(err, &behind) || behind.Epoch != tt.earlier {
						t.Errorf("ended with %v", err)
					}
					for _, e := range s.heard(wire.TypePresence) {
						if m, err := wire.DecodePresence(e.Body); err != nil || m.State == wire.PresenceOffline {
							t.Errorf("%+v, %v: its last word is older than what the broker had", m, err)
						}
					}
					s.cancel()
					s.done = nil
				default:
					if tt.ends {
						t.Error("goes on")
					}
				}
			})
		})
	}
}
