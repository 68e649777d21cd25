package mixing

import (
	"strings"
	"sync"
	"testing"
	"time"

	paho "github.com/eclipse/paho.mqtt.golang"

	"github.com/fedmesh/fedmesh/wire"
)

// ponger is a plain paho client. In each step it publishes as many bytes as an agent's snapshot, and waits for equally
// large messages from all neighbours.
type ponger struct {
	client   paho.Client
	topic    string
	messages [][]byte
	came     chan int // receives the index of a neighbour for each message from this neighbour
	parts    int
}

// pinged runs pongers (plain paho clients) on the graph and returns the cost of the steps. Each step exchanges as many
// messages as a step of mixing agents.
func pinged(b *testing.B, at *site, graph shape, size, steps int) cost {
	b.Helper()
	all := make([]*ponger, agents)
	for i := range all {
		all[i] = newPonger(b, at.address, graph, i, size)
		defer all[i].client.Disconnect(0)
	}
	began := at.now(b)
	var wg sync.WaitGroup
	for _, p := range all {
		wg.Go(func() { p.run(b, 2*graph.next, steps) })
	}
	wg.Wait()
	return at.since(b, began)
}

func newPonger(b *testing.B, address string, graph shape, i, size int) *ponger {
	b.Helper()
	login := login(address, rival, i)
	p := &ponger{topic: "fl/v1/" + rival + "/x/" + clientOf(rival, i) + "/1/", messages: snapshotOf(graph, i, size),
		came: make(chan int, 4096)}
	p.parts = len(p.messages)
	o := paho.NewClientOptions().AddBroker(login.URL).SetClientID(login.ClientID).SetUsername(login.Username).
		SetPassword(login.Password).
		SetProtocolVersion(4).SetOrderMatters(true)
	p.client = paho.NewClient(o)
	wait(b, p.client.Connect())
	for k, j := range graph.neighbours(i) {
		filter := "fl/v1/" + rival + "/x/" + clientOf(rival, j) + "/1/+"
		wait(b, p.client.Subscribe(filter, 0, func(paho.Client, paho.Message) { p.came <- k }))
	}
	return p
}

func wait(b *testing.B, t paho.Token) {
	b.Helper()
	if t.Wait() && t.Error() != nil {
		b.Fatal(t.Error())
	}
}

// snapshotOf returns the messages of one step. They are as long as the sealed snapshot that an agent sends over all its
// edges.
func snapshotOf(graph shape, i, size int) (messages [][]byte) {
	s := wire.SnapshotPartHeader{}
	for _, j := range graph.neighbours(i) {
		s.Receivers = append(s.Receivers, wire.SnapshotReceiver{PeerInstance: wire.PeerInstance{ID: idOf(j)}})
	}
	for ; size > 0; size -= wire.MaxSnapshotPart {
		m := wire.AppendSnapshotPartHeader(nil, wire.PeerMessageHeader{Type: wire.PeerSnapshot, Sender: idOf(i)}, &s)
		messages = append(messages, append(m, make([]byte, min(size, wire.MaxSnapshotPart)+wire.PeerSealOverhead)...))
	}
	return messages
}

func (p *ponger) run(b *testing.B, neighbours, steps int) {
	part := strings.Split("1 2 3 4 5 6 7 8", " ")
	got := make([]int, neighbours)
	late := time.NewTimer(time.Minute)
	for step := 1; step <= steps; step++ {
		for k, m := range p.messages {
			p.client.Publish(p.topic+part[k], 0, false, m)
		}
		for missing := neighbours; missing > 0; {
			missing = 0
			for _, n := range got {
				if n < step*p.parts {
					missing++
				}
			}
			if missing == 0 {
				break
			}
			select {
			case k := <-p.came:
				got[k]++
			case <-late.C:
				b.Errorf("%s lost a message at step %d", p.topic, step)
				return
			}
		}
	}
}
