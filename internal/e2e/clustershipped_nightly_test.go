//go:build nightly

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/acltest"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
	shipped "github.com/fedmesh/fedmesh/packaging/cluster"
)

// TestShippedCluster runs three coordinators with certificates on three NATS servers with the configuration nats.conf
// that we ship. TestShippedCluster kills the leader. Then it kills one server and replaces it by a server without data,
// and finally kills another server.
func TestShippedCluster(t *testing.T) {
	t.Parallel()
	authority := acltest.NewAuthority(t)
	engine := brokers.NewShippedNATS(t, strings.ReplaceAll(string(shipped.Conf), "plant_7", "e2e"), authority)
	engine.Start(t)
	broker := brokers.OpenMosquitto(t)
	heard := hearOrders(t, broker)
	certificate, key := acltest.PEMOf(t, authority.Issue(t, "e2e-coordinator"))
	dir := t.TempDir()
	for name, text := range map[string][]byte{"ca.crt": authority.PEM(), "nats.crt": certificate, "nats.key": key} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := newCluster(t, broker, engine, withoutEnd, func(_, text string) string {
		return strings.NewReplacer("nats://", "tls://", "cluster: {", fmt.Sprintf("cluster: {ca_file: %s/ca.crt, "+
			"cert_file: %[1]s/nats.crt, key_file: %[1]s/nats.key, ", dir)).Replace(text)
	})
	first := c.leader(t, c.names...)
	c.awaitRounds(t, first, 3)
	c.replicas[first].Kill()
	second := c.takenOver(t, first, time.Now())
	c.start(t, first)
	c.replicas[first].Await(t, "on standby leader="+second)
	lost := engine.Nodes[2]
	lost.Kill()
	if err := os.RemoveAll(filepath.Join(lost.Dir, "jetstream")); err != nil {
		t.Fatal(err)
	}
	lost.Rejoin(t)
	engine.Nodes[0].Kill()
	before := c.rounds(second)
	// While the new server starts, the servers may have no quorum for up to 10 s, and another coordinator may take
	// over.
	testkit.Until(t, "three more rounds, whoever leads", func() bool {
		return slices.ContainsFunc(c.names, func(name string) bool { return c.rounds(name) >= before+3 })
	})
	c.end(t, heard, 2)
}
