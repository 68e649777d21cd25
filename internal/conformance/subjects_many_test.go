//go:build nightly && linux

package conformance

import (
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
	"github.com/fedmesh/fedmesh/mqtt"
)

// others are the brokers that are tested nightly.
var others = []subject{
	{"nats", 0, 4 << 20, func(t *testing.T, n needs) *broker { return openNATS(t, n, 1) }},
	{"nats x3", 0, 4 << 20, func(t *testing.T, n needs) *broker { return openNATS(t, n, 3) }},
	{"rabbitmq", 0, 4 << 20, openRabbitMQ},
}

// openNATS returns a single NATS server or a cluster of NATS servers. In a cluster, the clients are distributed over
// the servers.
func openNATS(t *testing.T, of needs, nodes int) *broker {
	n := brokers.NewNATS(t, nodes, of.memory, "max_pending: 4MB")
	b := &broker{proc: n, address: n.Nodes[0].Address, scheme: "tcp", secrets: func(*mqtt.Options) {},
		limited: ", with GOMEMLIMIT"}
	for _, other := range n.Nodes[1:] {
		b.others = append(b.others, other.Address)
	}
	return b
}

func openRabbitMQ(t *testing.T, _ needs) *broker {
	r := brokers.NewRabbitMQ(t)
	return &broker{proc: r, address: r.Address, scheme: "tcp", secrets: func(*mqtt.Options) {}}
}
