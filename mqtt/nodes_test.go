package mqtt_test

import (
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/eclipse/paho.mqtt.golang/packets"

	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
	"github.com/fedmesh/fedmesh/internal/testkit/mqtttest"
	"github.com/fedmesh/fedmesh/mqtt"
)

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 7)) }

// nodes starts n fake brokers, which represent the nodes of a cluster. Each node reports every CONNECT to a channel and
// closes a link at its first message. answer reports whether a node answers CONNECT.
func nodes(t *testing.T, n int, answer func(node int) bool) (urls []string, connects chan int) {
	t.Helper()
	connects = make(chan int, 1000)
	for i := range n {
		f := startFake(t, func(conn net.Conn, p packets.ControlPacket) packets.ControlPacket {
			switch p.(type) {
			case *packets.ConnectPacket:
				connects <- i
				if !answer(i) {
					return nil
				}
			case *packets.PublishPacket:
				_ = conn.Close()
			}
			return usual(p)
		})
		urls = append(urls, f.url())
	}
	return urls, connects
}

// TestSilentNodeIsLeft checks that a cluster node that never answers CONNECT costs only one short connection attempt.
func TestSilentNodeIsLeft(t *testing.T) {
	t.Parallel()
	silent := make(chan int, 1)
	urls, connects := nodes(t, 2, func(node int) bool {
		select {
		case silent <- node: // the session tries this node first
			return false
		default:
			return true
		}
	})
	s := dialing(t, mqtt.Options{URL: urls[0], MoreURLs: urls[1:], ClientID: "s"})
	mqtttest.WantUp(t, s)
	if first, second := <-connects, <-connects; first == second {
		t.Errorf("node %d was asked twice in a row", first)
	}
}

// TestOrderOfNodes checks that a session tries all URLs in a fixed order. The order differs between sessions and
// depends only on the seed.
func TestOrderOfNodes(t *testing.T) {
	t.Parallel()
	const n = 4
	orders := map[[n]int]bool{}
	for seed := range uint64(8) {
		var seen [3][n]int
		for i := range 2 {
			// Separate nodes, because a closed session may still send a CONNECT.
			urls, connects := nodes(t, n, func(int) bool { return true })
			s := dialing(t, mqtt.Options{URL: urls[0], MoreURLs: urls[1:], ClientID: "s", Rand: newRand(seed)})
			for turn := range (i + 1) * n {
				mqtttest.WantUp(t, s)
				seen[i+turn/n][turn%n] = <-connects
				mqtttest.Publish(t, s, mqtt.Message{Topic: "x"})
				mqtttest.WantDown(t, s)
			}
			_ = s.Close()
		}
		order := seen[0]
		if seen[1] != order || seen[2] != order {
			t.Errorf("seed %d: orders %v", seed, seen)
		}
		orders[order] = true
		slices.Sort(order[:])
		if order != [n]int{0, 1, 2, 3} {
			t.Errorf("seed %d: not every node has its turn: %v", seed, seen)
		}
	}
	if len(orders) < 4 {
		t.Errorf("8 sessions have only the orders %v", orders)
	}
}

// TestKilledNodeIsLeft checks that a session whose cluster node is killed reconnects to the other node after the usual
// delays.
func TestKilledNodeIsLeft(t *testing.T) {
	t.Parallel()
	nodes := map[string]*brokers.Mosquitto{}
	var urls []string
	for range 2 {
		m := brokers.NewMosquitto(t, []byte(brokers.AnonymousListenerConf))
		m.Start(t)
		urls = append(urls, "tcp://"+m.Address)
		nodes[urls[len(urls)-1]] = m
	}
	logger, lines := logged()
	s := dial(t, mqtt.Options{URL: urls[0], MoreURLs: urls[1:], ClientID: "s", Logger: logger,
		MaxReconnectDelay: time.Minute})
	s.Subscribe(mqtt.AtLeastOnce, "x")
	mqtttest.SyncWithBroker(t, s)
	inUse := func() string {
		_, url, _ := strings.Cut(strings.TrimSuffix(strings.TrimSpace(line(t, lines)), `"`),
			"connected to the broker at ")
		return url
	}
	before := inUse()
	nodes[before].Kill()
	mqtttest.WantDown(t, s)
	mqtttest.WantUp(t, s)
	if l := line(t, lines); !strings.Contains(l, "lost the connection to the broker at "+before) ||
		!strings.Contains(l, " at tcp://") {
		t.Errorf("logged %s", l)
	}
	if now := inUse(); now == before || nodes[now] == nil {
		t.Errorf("is at %s, after %s was killed", now, before)
	}
	mqtttest.Publish(t, s, mqtt.Message{Topic: "x"})
	if m := mqtttest.Received(t, s); m.Topic != "x" {
		t.Errorf("got %s", m.Topic)
	}
}
