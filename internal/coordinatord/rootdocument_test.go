package coordinatord

import (
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/internal/coordinatord/agentlist"
	"github.com/fedmesh/fedmesh/internal/testkit/hosts"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// TestRootInstalledKilled kills the coordinator or a device before each disk operation while a root document that
// revokes another device is installed. Each must start with a valid document, the old or the new one. After a second
// installation both must use the new one, and the revoked device must be in no list.
func TestRootInstalledKilled(t *testing.T) {
	killEach(t, 5, installKilled)
}

func installKilled(t *testing.T, what, who string, cut int) (killed bool) {
	p := newPlant(t)
	must(t, agentlist.EditListFile(store.LocalDisk, p.s.Identity.AgentListFile, nil, "mill", hosts.PublicOf("mill")))
	roots, err := p.s.RootDocuments()
	must(t, err)
	next := roots[0]
	next.Version, next.RevokedAgents = 2, []wire.AgentID{"mill"}
	next.Sign(hosts.TestKey("root"), hosts.TestKey("root"))
	v := p.begin(who, yes)
	v.disk.left.Store(int64(cut))
	go func() { _, _ = p.members.installRootDocument(t.Context(), next.Bytes()) }()
	select {
	case <-v.died:
		killed = true
		wait(time.Second)
	case <-time.After(time.Minute):
		v.disk.left.Store(1 << 40)
	}
	p.stop()
	p.lead(nil, yes)
	p.join(nil)
	wait(time.Minute)
	if _, err := p.members.installRootDocument(t.Context(), next.Bytes()); err != nil {
		t.Errorf("%s: the same document again: %v", what, err)
	}
	wait(5 * time.Minute)
	p.stop()
	p.lead(nil, yes)
	p.join(nil)
	wait(time.Minute)
	if e := p.presence(); e.Root != 2 {
		t.Errorf("%s: the device goes by version %d of the root document", what, e.Root)
	}
	if roots, err := p.s.RootDocuments(); err != nil || len(roots) != 2 {
		t.Errorf("%s: the coordinator has %d root documents, %v", what, len(roots), err)
	}
	if is, err := agentlist.LookupAgentAndKey(p.s.Identity.AgentListFile, "mill",
		nil); err != nil || is.AgentKey != nil {
		t.Errorf("%s: the device that it revokes is in the list: %v", what, err)
	}
	p.stop()
	return killed
}
