package brokers

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit/acltest"
)

// NewShippedNATS prepares a cluster of three servers with the configuration file from packaging/cluster. It replaces
// all paths, names and addresses by the paths, names and addresses of the test. The servers use certificates of the
// given authority.
func NewShippedNATS(t testing.TB, conf string, a *acltest.Authority) *NATS {
	t.Helper()
	return layOutNATS(t, 3, 0, func(i int, n *NATS) string {
		node := n.Nodes[i]
		certificate, key := acltest.PEMOf(t, a.Issue(t, fmt.Sprint("n", i+1), "localhost"))
		node.Write(t, "ca.crt", a.PEM())
		node.Write(t, "server.crt", certificate)
		node.Write(t, "server.key", key)
		changes := []string{
			"server_name: n1", fmt.Sprint("server_name: n", i+1), "/etc/nats/", node.Dir + "/",
			"/var/lib/nats", node.Dir + "/jetstream", "0.0.0.0:4222", node.Client, "0.0.0.0:6222", node.Route,
			"127.0.0.1:8222", node.monitor,
		}
		// The shipped configuration contains DNS names of the servers. The test uses loopback addresses instead.
		for j, other := range n.Nodes {
			_, port, err := net.SplitHostPort(other.Route)
			if err != nil {
				t.Fatal(err)
			}
			changes = append(changes, fmt.Sprintf("n%d.example:6222", j+1), "localhost:"+port)
		}
		for j := 0; j < len(changes); j += 2 {
			if !strings.Contains(conf, changes[j]) {
				t.Fatalf("nats.conf does not say %q", changes[j])
			}
		}
		return strings.NewReplacer(changes...).Replace(conf)
	})
}
