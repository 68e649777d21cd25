package mixing

import (
	"bytes"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/mqtt/broker/acl"
	shipped "github.com/fedmesh/fedmesh/packaging/mosquitto"
	"github.com/fedmesh/fedmesh/wire"
)

func TestMain(m *testing.M) {
	brokers.ServeIfAsked()
	m.Run()
}

const (
	federation = "ours"
	rival      = "bare"
	agents     = 50
)

func idOf(i int) wire.AgentID { return wire.AgentID(fmt.Sprintf("a%02d", i)) }

// shape is a graph in which each agent is joined with the next few, around a circle.
type shape struct {
	name string
	next int
}

// neighbours returns those of agent i, in id order.
func (s shape) neighbours(i int) []int {
	var all []int
	for k := 1; k <= s.next; k++ {
		all = append(all, (i+k)%agents, (i+agents-k)%agents)
	}
	slices.Sort(all)
	return all
}

// broker is one with our access rules and a password for each agent of both federations.
type broker struct {
	name string
	open func(b *testing.B) *site
}

// site is a broker that runs.
type site struct {
	address string
	cpu     func(testing.TB) time.Duration
}

// cost is what something took: time, and the processor time of this process and the broker's.
type cost struct{ wall, cpu time.Duration }

var epoch = time.Now()

func (s *site) now(b *testing.B) cost {
	var own syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &own); err != nil {
		b.Fatal(err)
	}
	return cost{time.Since(epoch), time.Duration(own.Utime.Nano()+own.Stime.Nano()) + s.cpu(b)}
}

func (s *site) since(b *testing.B, began cost) cost {
	now := s.now(b)
	return cost{now.wall - began.wall, now.cpu - began.cpu}
}

var subjects = []broker{
	{"mosquitto", func(b *testing.B) *site {
		m := brokers.NewMosquitto(b, shipped.PlainConf)
		table, err := acl.New("")
		if err != nil {
			b.Fatal(err)
		}
		var ids []wire.AgentID
		var users []string
		var rules bytes.Buffer
		for i := range agents {
			ids = append(ids, idOf(i))
			users = append(users, clientOf(federation, i), clientOf(rival, i))
		}
		for _, f := range []wire.Federation{federation, rival} {
			text, err := table.MosquittoACLFile(f, ids, true)
			if err != nil {
				b.Fatal(err)
			}
			rules.Write(text)
		}
		m.Write(b, "acl", rules.Bytes())
		m.AddUsers(b, users...)
		m.Start(b)
		return &site{m.Address, m.CPU}
	}},
	{"embedded", func(b *testing.B) *site {
		e := brokers.NewEmbedded(b, "nobody", 3*agents, 0)
		e.Start(b)
		return &site{e.Address, e.CPU}
	}},
}

func clientOf(federation string, i int) string { return federation + "-" + string(idOf(i)) }

// login is how a client enters the broker.
func login(address, federation string, i int) mqtt.Options {
	client := clientOf(federation, i)
	return mqtt.Options{URL: "tcp://" + address, ClientID: client, Username: client, Password: "password of " + client}
}

// BenchmarkMixing has all contestants take turns at one broker. A figure is the median of the iterations.
func BenchmarkMixing(b *testing.B) {
	for _, s := range subjects {
		for _, graph := range []shape{{"ring", 1}, {"degree-6", 3}} {
			for _, size := range []int{512, 64 << 10} {
				b.Run(fmt.Sprintf("%s/%s/%d", s.name, graph.name, size), func(b *testing.B) {
					at := s.open(b)
					steps := 400
					if size > wire.MaxSnapshotPart {
						steps = 40
					}
					contestants := []struct {
						name string
						run  func() cost
					}{
						{"sealed", func() cost { return mixed(b, at, graph, size, steps, false) }},
						{"open", func() cost { return mixed(b, at, graph, size, steps, true) }},
						{"paho", func() cost { return pinged(b, at, graph, size, steps) }},
					}
					r := results{}
					for b.Loop() {
						for _, c := range contestants {
							r.add(c.name, c.run(), steps)
						}
					}
					r.report(b, float64(partsOf(size)*agents*(1+2*graph.next)))
				})
			}
		}
	}
}

func partsOf(size int) int { return (size + wire.MaxSnapshotPart - 1) / wire.MaxSnapshotPart }

// results are of one cell, by contestant: steps per second, and per second of processor time.
type results map[string]*[2][]float64

func (r results) add(name string, c cost, steps int) {
	if r[name] == nil {
		r[name] = new([2][]float64)
	}
	for i, d := range []time.Duration{c.wall, c.cpu} {
		r[name][i] = append(r[name][i], float64(steps)/d.Seconds())
	}
}

// report tells medians: steps per second, messages per second through the broker, in and out, and our share of paho's,
// in time and in processor time.
func (r results) report(b *testing.B, messages float64) {
	median := func(name string, i int) float64 {
		slices.Sort(r[name][i])
		return r[name][i][len(r[name][i])/2]
	}
	for _, name := range []string{"sealed", "open", "paho"} {
		b.ReportMetric(median(name, 0), name+"_steps/s")
		b.ReportMetric(median(name, 0)*messages, name+"_msgs/s")
	}
	for _, name := range []string{"sealed", "open"} {
		b.ReportMetric(median(name, 0)/median("paho", 0), name+"/paho")
		b.ReportMetric(median(name, 1)/median("paho", 1), name+"/paho_cpu")
	}
	b.ReportMetric(0, "ns/op") // says nothing
}
