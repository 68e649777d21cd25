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

// natsServer builds the nats-server program once per process and returns its path. The program stays in Go's build
// cache, so that other test processes do not build it again.
var natsServer = sync.OnceValues(func() (path string, err error) {
	// The test can run in any folder of this module or of a module in tools, so ask for the folder of this module.
	module, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/fedmesh/fedmesh").Output()
	if err != nil {
		return "", err
	}
	tool := exec.Command("go", "tool", "-n", "nats-server")
	tool.Dir = filepath.Join(strings.TrimSpace(string(module)), "tools", "nats")
	// Without cgo the program also runs in containers that have no C library.
	tool.Env = append(os.Environ(), "CGO_ENABLED=0")
	var problem strings.Builder
	tool.Stderr = &problem
	out, err := tool.Output()
	if err != nil {
		return "", fmt.Errorf("go tool nats-server: %w: %s", err, problem.String())
	}
	return strings.TrimSpace(string(out)), nil
})

// NATSServer returns the path of the nats-server program and builds it if necessary. In -short mode it skips the test.
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

// NATS is a cluster of NATS servers that accept MQTT clients. Each server runs as a separate process.
type NATS struct {
	Nodes []*natsNode
}

// natsNode is one server of a NATS cluster. The field Address is the address for MQTT clients.
type natsNode struct {
	process

	Client  string // address (host:port) for clients that use the NATS protocol
	Route   string // address (host:port) for the other servers of the cluster
	monitor string
	mqtt    bool // true if the server accepts MQTT clients
}

// NewNATS prepares a cluster of NATS servers. conf is added to the configuration of each server. memoryLimit is the
// GOMEMLIMIT of each server in bytes; 0 means no limit.
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

// layOutNATS prepares the folders of the servers. The function conf returns the configuration of server i.
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

// Start starts all servers and waits until JetStream works and the servers accept MQTT clients. It does not rely on the
// ready message, because a cluster logs this message before the stream leaders are elected.
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

// Rejoin restarts a server that was killed and waits until it has the same data as the other servers. Before that,
// another server must not be killed.
func (n *natsNode) Rejoin(t testing.TB) {
	t.Helper()
	n.Start(t)
	if n.mqtt {
		n.awaitMQTT(t)
	}
	n.awaitHealth(t)
}

// awaitPeers waits until the JetStream leader is in contact with all other servers, because the leader refuses streams
// with three replicas before that. For a single server it returns immediately.
func (n *NATS) awaitPeers(t testing.TB) {
	t.Helper()
	if len(n.Nodes) == 1 {
		return
	}
	leaderHasPeers := func(node *natsNode) bool {
		var jetStream struct {
			Meta struct {
				Replicas []struct{ Current, Offline bool } // Only the leader fills this list.
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

// awaitHealth waits until the server reports that it has the same data as the other servers.
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

// HasClient reports whether the MQTT client with the given client id is connected to this server.
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

// ask requests a page from the server's monitoring endpoint and decodes the JSON response into answer.
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
			// The server itself delays the answer by a few seconds while it is not ready.
			answer, err = packets.ReadPacket(conn)
		}
		_ = conn.Close()
		if ack, ok := answer.(*packets.ConnackPacket); ok && err == nil && ack.ReturnCode == 0 {
			return
		}
	}
	t.Fatalf("%s lets no client of MQTT in", n.Address)
}

// Kill kills all server processes without a shutdown. The kill simulates a power failure.
func (n *NATS) Kill() {
	for _, node := range n.Nodes {
		node.Kill()
	}
}

// Memory returns the largest value of the given line in /proc/PID/status among all servers, in bytes.
func (n *NATS) Memory(t testing.TB, line string) (most int) {
	t.Helper()
	for _, node := range n.Nodes {
		most = max(most, node.Memory(t, line))
	}
	return most
}

// URLs returns the MQTT URLs of all servers in the cluster.
func (n *NATS) URLs() (urls []string) {
	for _, node := range n.Nodes {
		urls = append(urls, "tcp://"+node.Address)
	}
	return urls
}
