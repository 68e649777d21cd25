package brokers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/eclipse/paho.mqtt.golang/packets"

	"github.com/fedmesh/fedmesh/lab/launch"
	"github.com/fedmesh/fedmesh/mqtt"
)

// natsServer has go build nats-server, the tool of tools/nats, into its cache, where it stays for the next process.
var natsServer = sync.OnceValues(func() (path string, err error) {
	module, err := exec.Command("go", "env", "GOMOD").Output() // of the test's package, in whatever folder it is
	if err != nil {
		return "", err
	}
	tool := exec.Command("go", "tool", "-n", "nats-server")
	tool.Dir = filepath.Join(filepath.Dir(string(module)), "tools", "nats")
	tool.Env = append(os.Environ(), "CGO_ENABLED=0") // it runs in containers with nothing else
	var problem strings.Builder
	tool.Stderr = &problem
	out, err := tool.Output()
	if err != nil {
		return "", fmt.Errorf("go tool nats-server: %w: %s", err, problem.String())
	}
	return strings.TrimSpace(string(out)), nil
})

// NATSServer returns the path of nats-server, which is built when it must be. With -short the test is skipped.
func NATSServer(t testing.TB) string {
	t.Helper()
	if testing.Short() {
		t.Skip("a server is a process: -short builds and runs none")
	}
	path, err := natsServer()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// NATS is a cluster of NATS servers that speak MQTT, each a process of its own.
type NATS struct {
	Nodes []*natsNode
}

// natsNode is one of them; its address is that of MQTT.
type natsNode struct {
	process

	Client  string // where NATS's own clients connect, host:port
	Route   string // where other servers do
	monitor string
	mqtt    bool // it speaks MQTT, too
}

// NewNATS lays out that many servers, with the lines of conf. With a memory limit, in bytes, that is GOMEMLIMIT of
// each.
func NewNATS(t testing.TB, nodes, memoryLimit int, conf string) *NATS {
	t.Helper()
	return layOutNATS(t, nodes, memoryLimit, func(i int, n *NATS) string {
		node := n.Nodes[i]
		node.mqtt = true
		text := fmt.Sprintf("server_name: n%d\nlisten: %s\nhttp: %s\njetstream {store_dir: %q}\nmqtt {listen: %s}\n"+
			"%s\n", i+1, node.Client, node.monitor, filepath.Join(node.Dir, "jetstream"), node.Address, conf)
		if nodes > 1 {
			var routes []string
			for _, node := range n.Nodes {
				routes = append(routes, "nats://"+node.Route)
			}
			text += fmt.Sprintf("cluster {name: plant, listen: %s, routes: [%s]}\n", node.Route,
				strings.Join(routes, ", "))
		}
		return text
	})
}

// layOutNATS lays out servers, each with the configuration that conf returns.
func layOutNATS(t testing.TB, nodes, memoryLimit int, conf func(i int, n *NATS) string) *NATS {
	t.Helper()
	program := NATSServer(t)
	n := &NATS{}
	for range nodes {
		node := &natsNode{process: newProcess(t), Client: FreeAddress(t), Route: FreeAddress(t),
			monitor: FreeAddress(t)}
		node.ready = "Server is ready"
		node.command = func() *exec.Cmd {
			cmd := exec.Command(program, "-c", filepath.Join(node.Dir, "nats.conf"))
			if memoryLimit > 0 {
				cmd.Env = append(os.Environ(), fmt.Sprint("GOMEMLIMIT=", memoryLimit))
			}
			return cmd
		}
		n.Nodes = append(n.Nodes, node)
	}
	for i, node := range n.Nodes {
		node.Write(t, "nats.conf", []byte(conf(i, n)))
	}
	return n
}

// Start returns when all servers have what JetStream needs, and let a client of MQTT in if they speak it: a cluster
// says that it is ready before it has elected those that keep what they need.
func (n *NATS) Start(t testing.TB) {
	t.Helper()
	for _, node := range n.Nodes {
		node.Start(t)
	}
	n.awaitPeers(t)
	for _, node := range n.Nodes {
		if node.mqtt {
			node.awaitMQTT(t)
		} else {
			node.awaitHealth(t)
		}
	}
}

// Rejoin starts a node that was killed, and returns when it has all that the others keep: from then on another one may
// be killed.
func (n *natsNode) Rejoin(t testing.TB) {
	t.Helper()
	n.Start(t)
	if n.mqtt {
		n.awaitMQTT(t)
	}
	n.awaitHealth(t)
}

// awaitPeers returns when the leader of JetStream has heard from all other servers. Until then it refuses a stream of
// three copies: it places none on a server that it takes to be offline. A single server has no leader.
func (n *NATS) awaitPeers(t testing.TB) {
	t.Helper()
	if len(n.Nodes) == 1 {
		return
	}
	leaderHasPeers := func(node *natsNode) bool {
		var jetStream struct {
			Meta struct {
				Replicas []struct{ Current, Offline bool } // listed by the leader alone
			} `json:"meta_cluster"`
		}
		node.ask(t, "/jsz", &jetStream)
		usable := 0
		for _, peer := range jetStream.Meta.Replicas {
			if peer.Current && !peer.Offline {
				usable++
			}
		}
		return usable == len(n.Nodes)-1
	}
	if err := launch.Until(context.Background(), patience, func() bool {
		return slices.ContainsFunc(n.Nodes, leaderHasPeers)
	}); err != nil {
		t.Fatalf("no server leads JetStream with all others: %v", err)
	}
}

// awaitHealth returns when the server has all that the others keep.
func (n *natsNode) awaitHealth(t testing.TB) {
	t.Helper()
	var health struct{ Status string }
	if err := launch.Until(context.Background(), patience, func() bool {
		n.ask(t, "/healthz", &health)
		return health.Status == "ok"
	}); err != nil {
		t.Fatalf("%s does not become healthy: %v", n.Address, err)
	}
}

// HasClient reports whether a client of MQTT is at this node.
func (n *natsNode) HasClient(t testing.TB, client string) bool {
	t.Helper()
	var open struct {
		Connections []struct {
			Client string `json:"mqtt_client"`
		}
	}
	n.ask(t, "/connz?mqtt_client="+client, &open)
	return len(open.Connections) > 0
}

// ask asks the server about itself.
func (n *natsNode) ask(t testing.TB, page string, answer any) {
	t.Helper()
	r, err := http.Get("http://" + n.monitor + page)
	if err == nil {
		err = errors.Join(json.NewDecoder(r.Body).Decode(answer), r.Body.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (n *natsNode) awaitMQTT(t testing.TB) {
	t.Helper()
	for late := time.Now().Add(patience); time.Now().Before(late); {
		conn, err := net.Dial("tcp", n.Address)
		if err != nil {
			t.Fatal(err)
		}
		var answer packets.ControlPacket
		if err = ConnectPacket(mqtt.Options{ClientID: "first"}).Write(conn); err == nil {
			_ = conn.SetReadDeadline(late)
			answer, err = packets.ReadPacket(conn) // the server waits some seconds itself
		}
		_ = conn.Close()
		if ack, ok := answer.(*packets.ConnackPacket); ok && err == nil && ack.ReturnCode == 0 {
			return
		}
	}
	t.Fatalf("%s lets no client of MQTT in", n.Address)
}

// Kill ends all servers as a power cut would.
func (n *NATS) Kill() {
	for _, node := range n.Nodes {
		node.Kill()
	}
}

// Memory returns a line of the servers' statuses, in bytes: that of the largest.
func (n *NATS) Memory(t testing.TB, line string) (most int) {
	t.Helper()
	for _, node := range n.Nodes {
		most = max(most, node.Memory(t, line))
	}
	return most
}

// URLs are those of MQTT, of all nodes.
func (n *NATS) URLs() (urls []string) {
	for _, node := range n.Nodes {
		urls = append(urls, "tcp://"+node.Address)
	}
	return urls
}
