package conformance

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"hash/crc32"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/internal/testkit/acltest"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/mqtt/broker/acl"
	"github.com/fedmesh/fedmesh/packaging/mosquitto"
	"github.com/fedmesh/fedmesh/wire"
)

const federation = "plant"

// Users of the tests. The access rules restrict the users of the federation. The users anyone0, anyone1, … have full
// access; the constant anyones is the number of these users.
const (
	anyone  = "anyone"
	anyones = 160
)

// subject is a broker under test.
type subject struct {
	name string
	// maxPacket is the maximum size of an MQTT packet in bytes. Zero means no limit.
	maxPacket int
	// slowBytes is the maximum memory, in bytes, that the broker may use for each client that does not read.
	slowBytes int
	open      func(t *testing.T, n needs) *broker
}

// needs describes the requirements of a test for its broker.
type needs struct {
	agents int // number of agents, which are called a0, a1, …
	memory int // Go's memory limit (GOMEMLIMIT) in bytes; 0 means no limit
}

type broker struct {
	proc interface {
		Start(t testing.TB)
		Kill()
		Memory(t testing.TB, line string) int
	}
	address string
	others  []string // addresses of the other nodes of the cluster
	scheme  string
	secrets func(o *mqtt.Options) // adds the credentials of a user to the options
	limited string                // note about the memory limit in the table; "" if no limit is set
}

var subjects = []subject{
	{"embedded", 128 << 10, 8 << 20, openEmbedded},
	{"mosquitto shipped", 128 << 10, 4 << 20, openShipped},
	{"mosquitto stock", 0, 4 << 20, openStock},
}

// start starts the broker without any state from an earlier run.
func (s subject) start(t *testing.T, n needs) *broker {
	t.Helper()
	b := s.open(t, n)
	b.proc.Start(t)
	return b
}

// as returns the options with which the given user connects to the broker.
func (b *broker) as(user string) mqtt.Options {
	address := b.address
	if len(b.others) > 0 {
		nodes := append([]string{b.address}, b.others...)
		sum := crc32.ChecksumIEEE([]byte(user))
		address = nodes[sum%uint32(len(nodes))]
	}
	o := mqtt.Options{URL: b.scheme + "://" + address, ClientID: user, MaxReconnectDelay: 50 * time.Millisecond}
	b.secrets(&o)
	return o
}

func anyOne(i int) string { return fmt.Sprint(anyone, i) }

func agentID(i int) wire.AgentID { return wire.AgentID(fmt.Sprint("a", i)) }

func withPassword(o *mqtt.Options) {
	o.Username, o.Password = o.ClientID, "password of "+o.ClientID
}

func openEmbedded(t *testing.T, n needs) *broker {
	e := brokers.NewEmbedded(t, anyone, n.agents+1024, n.memory)
	return &broker{proc: e, address: e.Address, scheme: "tcp", secrets: withPassword, limited: ", with GOMEMLIMIT"}
}

// openShipped returns Mosquitto with the configuration that we ship, TLS and client certificates.
func openShipped(t *testing.T, n needs) *broker {
	m := brokers.NewMosquitto(t, mosquitto.Conf)
	table, err := acl.NewRuleTable("")
	if err != nil {
		t.Fatal(err)
	}
	agents := make([]wire.AgentID, n.agents)
	for i := range agents {
		agents[i] = agentID(i)
	}
	text, err := table.MosquittoACLFile(federation, agents, true)
	if err != nil {
		t.Fatal(err)
	}
	rules := bytes.NewBuffer(text)
	for i := range anyones {
		fmt.Fprintf(rules, "\nuser %s\ntopic readwrite #\n", anyOne(i))
	}
	m.Write(t, "acl", rules.Bytes())
	authority := acltest.NewAuthority(t)
	m.AddCertificates(t, authority)
	pool := authority.Pool()
	return &broker{proc: m, address: m.Address, scheme: "tls", secrets: func(o *mqtt.Options) {
		certificate := authority.Issue(t, o.ClientID)
		o.TLS = &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	}}
}

// openStock returns Mosquitto with its default configuration except for the listener.
func openStock(t *testing.T, _ needs) *broker {
	m := brokers.NewMosquitto(t, []byte("listener 1883\nallow_anonymous true\n"))
	return &broker{proc: m, address: m.Address, scheme: "tcp", secrets: func(*mqtt.Options) {}}
}
