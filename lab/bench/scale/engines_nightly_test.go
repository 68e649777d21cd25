//go:build nightly

package scale

import (
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
)

// engine is a broker under measurement. The values of a cluster are totals over its nodes.
type engine interface {
	urls() []string
	cpu(t *testing.T) float64    // CPU time used so far in seconds
	memory(t *testing.T) float64 // resident memory in bytes
	kill()
}

type mosquitto struct{ *brokers.Mosquitto }

func newMosquitto(t *testing.T) engine {
	m := brokers.NewMosquitto(t, []byte(brokers.AnonymousListenerConf+"max_inflight_messages 100\n"))
	m.Start(t)
	return mosquitto{m}
}

func (m mosquitto) urls() []string              { return []string{"tcp://" + m.Address} }
func (m mosquitto) cpu(*testing.T) float64      { return m.CPU().Seconds() }
func (m mosquitto) memory(t *testing.T) float64 { return float64(m.Memory(t, "VmRSS")) }
func (m mosquitto) kill()                       { m.Kill() }

// nodes is the number of nodes of the NATS cluster.
const nodes = 3

type cluster struct{ *brokers.NATS }

func newCluster(t *testing.T) engine {
	n := brokers.NewNATS(t, nodes, 0, "")
	n.Start(t)
	return cluster{n}
}

func (c cluster) urls() []string { return c.URLs() }

func (c cluster) cpu(*testing.T) (s float64) {
	for _, n := range c.Nodes {
		s += n.CPU().Seconds()
	}
	return s
}

func (c cluster) memory(t *testing.T) (bytes float64) {
	for _, n := range c.Nodes {
		bytes += float64(n.Memory(t, "VmRSS"))
	}
	return bytes
}

func (c cluster) kill() { c.Kill() }
