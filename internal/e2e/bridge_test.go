package e2e

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/acltest"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
	"github.com/fedmesh/fedmesh/internal/testkit/mqtttest"
	"github.com/fedmesh/fedmesh/mqtt"
	shipped "github.com/fedmesh/fedmesh/packaging/mosquitto"
)

// bridged is a federation with three brokers: a hub broker for the coordinator, and two site brokers with three agents
// each. All brokers use the configuration files that we ship, and certificates.
type bridged struct {
	*federation
	t         *testing.T
	authority *acltest.Authority
	rules     string // access rules for Mosquitto in acl format
	hub       *brokers.Mosquitto
	sites     []*brokers.Mosquitto
	lines     []*line // connections from the site brokers to the hub broker
	ids       [][]string
	daemons   []*testkit.Process
}

func newBridged(t *testing.T, task, round, mesh string) *bridged {
	t.Helper()
	b := &bridged{t: t, authority: acltest.NewAuthority(t), ids: [][]string{{"a1", "a2", "a3"}, {"b1", "b2", "b3"}}}
	b.hub = brokers.NewMosquitto(t, shipped.Conf)
	b.federation = newFederation(t, "tls://"+b.hub.Address)
	var list strings.Builder
	for s, ids := range b.ids {
		site := b.newSite(s)
		b.Broker = "tls://" + site.Address
		for i, id := range ids {
			list.WriteString(b.AddAgent(t, id, plane(60+7*i)))
			b.trust(id)
		}
	}
	b.Broker = "tls://" + b.hub.Address
	b.ConfigureCoordinator(t, task, list.String(), round)
	b.trust("coordinator")
	if mesh != "" {
		b.add(t, "coordinator", mesh)
	}
	b.rules = programs.MustRun(t, "coordinator", "acl", "--config", b.Path("coordinator.yaml"))
	b.start(b.hub, b.rules+mine(shipped.BridgeACL, 0)+mine(shipped.BridgeACL, 1))
	for _, site := range b.sites {
		b.start(site, b.rules)
	}
	return b
}

// mine replaces the names in a shipped configuration file by the names in the test.
func mine(file []byte, site int) string {
	return strings.NewReplacer("plant_7", "e2e", "site-hall", fmt.Sprint("site-", site)).Replace(string(file))
}

// newSite prepares a site broker with a connection to the hub broker.
func (b *bridged) newSite(n int) *brokers.Mosquitto {
	b.t.Helper()
	l := newLine(b.t, b.hub.Address)
	bridge := strings.Replace(mine(shipped.Bridge, n), "hub.example:8883", l.address, 1)
	site := brokers.NewMosquitto(b.t, append(bytes.Clone(shipped.Conf), bridge...))
	cert, key := b.pems(fmt.Sprint("e2e-site-", n))
	site.Write(b.t, "certs/site.crt", cert)
	site.Write(b.t, "certs/site.key", key)
	b.sites, b.lines = append(b.sites, site), append(b.lines, l)
	return site
}

// start starts a broker with access rules. In addition to these rules, one more user may read all topics.
func (b *bridged) start(m *brokers.Mosquitto, rules string) {
	b.t.Helper()
	m.Write(b.t, "acl", []byte(rules+"\nuser "+acltest.ObserverUser+"\ntopic read #\n"))
	m.AddCertificates(b.t, b.authority)
	m.Start(b.t)
}

func (b *bridged) pems(name string) (cert, key []byte) {
	b.t.Helper()
	c := b.authority.Issue(b.t, name)
	der, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		b.t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// trust issues a certificate for the program with the given id.
func (b *bridged) trust(id string) {
	b.t.Helper()
	cert, key := b.pems("e2e-" + id)
	b.Write(b.t, id+".crt", string(cert))
	b.Write(b.t, id+".tls", string(key))
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: b.authority.Certificate.Raw})
	b.Write(b.t, "ca.crt", string(ca))
}

// daemon starts a program with its certificate.
func (b *bridged) daemon(program, id string) *testkit.Process {
	b.t.Helper()
	p := b.Daemon(b.t, program, id, "--set", "broker.ca_file="+b.Path("ca.crt"),
		"--set", "broker.cert_file="+b.Path(id+".crt"), "--set", "broker.key_file="+b.Path(id+".tls"))
	b.daemons = append(b.daemons, p)
	return p
}

// run starts the coordinator and all agents of both sites.
func (b *bridged) run() (lead *testkit.Process, agents []*testkit.Process) {
	b.t.Helper()
	lead = b.daemon("coordinator", "coordinator")
	for _, ids := range b.ids {
		for _, id := range ids {
			agents = append(agents, b.daemon("agentd", id))
		}
	}
	return lead, agents
}

func (b *bridged) stop() {
	b.t.Helper()
	for _, p := range b.daemons {
		p.Stop(b.t, syscall.SIGTERM, 0)
	}
}

// spy counts the messages at a broker by kind of topic.
type spy struct {
	mu   sync.Mutex
	seen map[mqtt.TopicKind]int
}

func (b *bridged) spy(m *brokers.Mosquitto) *spy {
	b.t.Helper()
	topics, err := mqtt.NewTopics("", "e2e")
	if err != nil {
		b.t.Fatal(err)
	}
	s := &spy{seen: map[mqtt.TopicKind]int{}}
	conn := mqtttest.Dial(b.t, mqtt.Options{
		URL: "tls://" + m.Address, ClientID: acltest.ObserverUser, MailboxBytes: 64 << 20,
		TLS: &tls.Config{RootCAs: b.authority.Pool(), MinVersion: tls.VersionTLS12,
			Certificates: []tls.Certificate{b.authority.Issue(b.t, acltest.ObserverUser)}},
	})
	conn.Subscribe(mqtt.AtMostOnce, "fl/#")
	go func() {
		for e := range conn.Events() {
			if m, ok := e.(mqtt.MessageReceived); ok {
				kind, _, _, _, err := topics.ParseTopic(m.Topic)
				if err != nil {
					continue
				}
				s.mu.Lock()
				s.seen[kind]++
				s.mu.Unlock()
			}
		}
	}()
	return s
}

func (s *spy) count(kind mqtt.TopicKind) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen[kind]
}

// TestBridge trains at two sites with the shipped configuration files. It disconnects one site while rounds continue,
// and reconnects the site later. The model is sent in chunks.
func TestBridge(t *testing.T) {
	t.Parallel()
	b := newBridged(t, "{name: plane, features: [a, b], target: y, steps: {budget: 100ms, max: 20}, "+
		"model: {kind: mlp, hidden: [20000]}}",
		`{participants: 6, quorum: 3, rounds: 0, pause: 100ms, deadline: 8s, gather: {target: 6, minimum: 3, within: 20s, spread: 10ms}}`, "")
	b.run()
	history := rounds{dir: b.Path("state")}
	accepted := func(n int) {
		t.Helper()
		testkit.Until(t, fmt.Sprint("a round with ", n, " agents"), func() bool {
			r := history.last()
			return r.Version > 1 && r.AcceptedUpdates == n
		})
	}
	accepted(6)
	b.lines[0].cut()
	accepted(3)
	b.lines[0].join()
	accepted(6)
	b.stop()
}

// TestBridgeMixing checks that neighbours exchange their mixing messages over the broker of their site, and that the
// hub broker receives none of these messages.
func TestBridgeMixing(t *testing.T) {
	t.Parallel()
	b := newBridged(t, feddec, `{algorithm: feddec, sampling: with_replacement, participants: 2, quorum: 1, rounds: 0,
  deadline: 20s, pause: 500ms, gather: {minimum: 6, within: 20s, spread: 100ms}}`, "mesh: {edges: discovered}")
	for s, ids := range b.ids {
		for _, id := range ids {
			b.add(t, id, fmt.Sprintf("d2d: {uplink: true, cell: hall-%d, max_degree: 2}", s))
		}
	}
	hub, site := b.spy(b.hub), b.spy(b.sites[0])
	lead, agents := b.run()
	lead.Await(t, "agents=6 edges=6")
	for _, p := range agents {
		p.Await(t, "flows=20")
	}
	lead.Await(t, "round closed round=3 ")
	for _, kind := range []mqtt.TopicKind{mqtt.KindPeer, mqtt.KindBeacon} {
		if at, there := hub.count(kind), site.count(kind); at > 0 || there == 0 {
			t.Errorf("%v: %d messages at the hub, want none; %d at the site", kind, at, there)
		}
	}
	if hub.count(mqtt.KindUpdate) == 0 || hub.count(mqtt.KindSelfTest) > 2 {
		t.Errorf("the hub has seen %d parts of updates and %d self-tests", hub.count(mqtt.KindUpdate),
			hub.count(mqtt.KindSelfTest))
	}
	b.stop()
}

// line forwards TCP connections to an address until it is cut.
type line struct {
	t           *testing.T
	address, to string
	listener    net.Listener
	mu          sync.Mutex
	open        []net.Conn
}

func newLine(t *testing.T, to string) *line {
	t.Helper()
	l := &line{t: t, address: brokers.FreeAddress(t), to: to}
	l.join()
	t.Cleanup(l.cut)
	return l
}

// join accepts connections again after a cut.
func (l *line) join() {
	l.t.Helper()
	var err error
	if l.listener, err = net.Listen("tcp", l.address); err != nil {
		l.t.Fatal(err)
	}
	go func(listener net.Listener) {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			if far, err := net.Dial("tcp", l.to); err == nil {
				l.mu.Lock()
				l.open = append(l.open, near, far)
				l.mu.Unlock()
				go forward(near, far)
				go forward(far, near)
			} else {
				_ = near.Close()
			}
		}
	}(l.listener)
}

func forward(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	_ = to.Close()
	_ = from.Close()
}

// cut closes all connections and refuses new connections. It does not accept and close new connections, because
// Mosquitto 2.0.11 does not retry after the peer has closed a TLS handshake.
func (l *line) cut() {
	_ = l.listener.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.open {
		_ = c.Close()
	}
	l.open = nil
}
