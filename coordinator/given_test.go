package coordinator

import (
	"log/slog"
	"testing"

	"github.com/fedmesh/fedmesh/coordinator/devices"
	"github.com/fedmesh/fedmesh/coordinator/duplicate"
	"github.com/fedmesh/fedmesh/coordinator/enrolled"
	"github.com/fedmesh/fedmesh/coordinator/publish"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/wire"
)

// TestHelloAfterTheKey: the hello of an agent that has just been given the key, and has not opened its task yet, says
// nothing about it; the next one does.
func TestHelloAfterTheKey(t *testing.T) {
	c := &Coordinator{publisher: publish.New(nil, mqtt.Topics{}, nil, nil, nil),
		guard: duplicate.New(duplicate.Config{})}
	c.devices = devices.New(enrolled.ListFromKeys(nil), devices.Config{}) // nothing can be sealed for the agent
	c.cfg.Logger = slog.New(slog.DiscardHandler)
	c.sealKeyring = sealKeyring{announcedKeyID: 7, secrets: []sealSecret{{}},
		sealKeysByPair:    map[sealPairKey]wire.SealKeys{},
		groupKeyIDByAgent: map[wire.AgentID]uint64{}, agentsJustSentKey: map[wire.AgentID]bool{}}
	for i, h := range []struct {
		wants uint64
		unfit wire.DeclineReason
		says  bool // more than that it wants the key
	}{
		{0, wire.DeclineFetch, true},
		{7, wire.DeclineFetch, false}, {0, wire.DeclineFetch, false}, {0, wire.DeclineFetch, true},
		{7, wire.DeclineFetch, false}, {0, wire.DeclineBadData, true}, {0, wire.DeclineFetch, true},
		{7, 0, true}, {0, 0, true}, {0, wire.DeclineFetch, true},
	} {
		m := wire.Hello{MissingGroupKeyID: h.wants, UnfitReason: h.unfit}
		if says := c.answerKeyRequest("a", &m); says != h.says {
			t.Errorf("hello %d (%+v) says more: %t", i, h, says)
		}
	}
}
