package bench

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	paho "github.com/eclipse/paho.mqtt.golang"

	"github.com/fedmesh/fedmesh/wire"
)

// bare is the contestant that consists of plain paho clients. One publisher sends a retained model to N subscribers,
// and then N publishers send updates to one subscriber. The messages are as long as our chunks. To prevent an overflow
// of the broker's queues, bare limits the number of messages in flight with the constants below. Unlike our credits,
// this needs no extra messages.
type bare struct {
	center  paho.Client
	agents  []paho.Client
	payload []byte
	parts   int
	meter   meter
	current atomic.Pointer[exchange]
}

// underway and underwayBytes limit the messages in flight to the single subscriber. The embedded broker allows 256
// unacknowledged messages with QoS 1, and Mosquitto drops messages before 4 MiB are queued.
const (
	underway      = 64
	underwayBytes = 1 << 20
)

// exchange is the state of one round: the counters of received messages and the messages in flight.
type exchange struct {
	out, back *count
	underway  chan struct{} // contains one element for each message in flight
	over      chan struct{}
}

func (x *exchange) came() {
	select {
	case <-x.underway:
	default: // the message is a duplicate, so no message was in flight
	}
	x.back.done()
}

func connectPaho(b *site, n int, payload []byte) (*bare, error) {
	p := &bare{payload: payload, parts: wire.ChunkCount(len(payload)), meter: b.meter}
	var err error
	p.center, err = p.connect(b, wire.CoordinatorID, "u/0/+/+/+", (*exchange).came)
	if err != nil {
		return p, err
	}
	for k := range n {
		c, err := p.connect(b, agentID(k), "m/+/+", func(x *exchange) { x.out.done() })
		if err != nil {
			return p, err
		}
		p.agents = append(p.agents, c)
	}
	return p, nil
}

func (p *bare) connect(b *site, id wire.AgentID, filter string, came func(*exchange)) (paho.Client, error) {
	name := rival + "-" + string(id)
	o := paho.NewClientOptions().AddBroker(b.url).SetClientID(name).SetUsername(name).SetPassword(b.password(name)).
		SetProtocolVersion(4).
		SetAutoAckDisabled(true) // Acknowledge each message manually, before the next chunk may be sent.
	c := paho.NewClient(o)
	if t := c.Connect(); t.Wait() && t.Error() != nil {
		return nil, fmt.Errorf("paho: %w", t.Error())
	}
	t := c.Subscribe("fl/v1/"+rival+"/"+filter, 1, func(_ paho.Client, m paho.Message) {
		m.Ack()
		if x := p.current.Load(); x != nil && len(m.Payload()) > 0 {
			came(x)
		}
	})
	if t.Wait() && t.Error() != nil {
		return nil, fmt.Errorf("paho: %w", t.Error())
	}
	return c, nil
}

func (p *bare) close() {
	for _, c := range append(p.agents, p.center) {
		if c != nil {
			c.Disconnect(0)
		}
	}
}

// round runs one round. It returns the first error of a publisher, or the number of lost messages as an error.
func (p *bare) round(ctx context.Context, qos byte) (s sample, err error) {
	most, n := min(underway, underwayBytes/min(wire.MaxChunkBytes, len(p.payload))), p.parts*len(p.agents)
	x := &exchange{newCount(n), newCount(n), make(chan struct{}, most), make(chan struct{})}
	p.current.Store(x)
	failed := make(chan error, 1)
	used, begun := p.meter.now(), time.Now()
	if err := p.publish(p.center, "m/0123456789abcdef0123456789abcdef", qos, true, nil); err != nil {
		return s, err
	}
	if err := x.out.wait(ctx, failed); err != nil {
		return s, fmt.Errorf("model not received by all agents: %w", err)
	}
	var publishers sync.WaitGroup
	for k, c := range p.agents {
		publishers.Go(func() {
			if err := p.publish(c, fmt.Sprintf("u/0/%s-%s/0123456789abcdef", rival, agentID(k)), qos, false,
				x); err != nil {
				select {
				case failed <- err:
				default:
				}
			}
		})
	}
	err = x.back.wait(ctx, failed)
	close(x.over)
	publishers.Wait()
	if err != nil {
		return s, fmt.Errorf("updates not received: %w", err)
	}
	return sample{time.Since(begun), p.meter.now() - used}, nil
}

// publish sends all parts of the payload and waits until each is acknowledged or, with QoS 0, written. If x is nil, the
// number of parts in flight is not limited.
func (p *bare) publish(c paho.Client, topic string, qos byte, retained bool, x *exchange) error {
	var tokens []paho.Token
	for k := range p.parts {
		if x != nil {
			select {
			case x.underway <- struct{}{}:
			case <-x.over:
				return nil
			}
		}
		tokens = append(tokens, c.Publish(fmt.Sprintf("fl/v1/%s/%s/%d", rival, topic, k), qos, retained,
			wire.ChunkPayload(p.payload, k)))
	}
	for _, t := range tokens {
		if t.Wait() && t.Error() != nil {
			return t.Error()
		}
	}
	return nil
}
