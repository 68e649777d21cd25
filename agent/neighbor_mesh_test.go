package agent

import (
	"crypto/ed25519"
	"testing"

	"github.com/fedmesh/fedmesh/d2d"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/mqtt"
)

// A scout that is behind with its beacons still hears of its link, and of the newest word only.
func TestScoutHearsOfItsLink(t *testing.T) {
	topics, err := mqtt.NewTopics("", "plant")
	if err != nil {
		t.Fatal(err)
	}
	m, err := newMesh(&Config{Topics: topics, Mesh: &MeshConfig{Cell: "roof", MaxDegree: 2}},
		&host.Signer{Key: ed25519.NewKeyFromSeed(make([]byte, 32))}, host.RealTime{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m.notifyScoutOfLink(true)
	for range inboxCapacity + 1 {
		m.routeMessage(mqtt.Message{Topic: topics.Beacon("roof", "a1"), Payload: []byte{1}})
	}
	m.notifyScoutOfLink(false)
	m.notifyScoutOfLink(true)
	if l := <-m.scoutLinkChanges; l != (d2d.LinkChanged{Up: true}) || len(m.scoutLinkChanges) > 0 ||
		len(m.scoutInbox) != inboxCapacity {
		t.Errorf("heard of %+v, %d more words and %d beacons", l, len(m.scoutLinkChanges), len(m.scoutInbox))
	}
}
