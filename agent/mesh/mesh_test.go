package mesh

import (
	"crypto/ed25519"
	"testing"

	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/agent/state"
	"github.com/fedmesh/fedmesh/d2d"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// noTrust provides no coordinator keys.
type noTrust struct{}

func (noTrust) CoordinatorKeys() []ed25519.PublicKey { return nil }
func (noTrust) RevokedAgents() []wire.AgentID        { return nil }

// TestScoutOnChangesOfLink checks that a scout that has not processed earlier notifications is notified only of the
// newest change of the connection.
func TestScoutOnChangesOfLink(t *testing.T) {
	topics, err := mqtt.NewTopics("", "plant")
	if err != nil {
		t.Fatal(err)
	}
	core := &part.AgentCore{Topics: topics, Loop: host.NewEventLoop(nil), ID: "press",
		StateFolder: state.Folder{Disk: store.LocalDisk, Dir: t.TempDir()},
		Signer:      &host.Signer{Key: ed25519.NewKeyFromSeed(make([]byte, 32))}}
	m, err := New(core, &Config{Cell: "roof", MaxNeighbors: 2}, noTrust{}, EventCallbacks{})
	if err != nil {
		t.Fatal(err)
	}
	m.LinkUp()
	for range inboxCapacity + 1 {
		m.RouteMessage(mqtt.Message{Topic: topics.Beacon("roof", "a1"), Payload: []byte{1}})
	}
	m.LinkDown(nil)
	m.LinkUp()
	if l := <-m.scoutLinkChanges; l != (d2d.BrokerLinkChanged{IsConnected: true}) || len(m.scoutLinkChanges) > 0 ||
		len(m.scoutInbox) != inboxCapacity {
		t.Errorf("notified of %+v, %d more changes and %d beacons", l, len(m.scoutLinkChanges), len(m.scoutInbox))
	}
}
