package mixing

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
	"github.com/fedmesh/fedmesh/lab/launch"
	"github.com/fedmesh/fedmesh/mqtt"
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

// shape is a graph whose agents are arranged on a circle. Each agent is connected to the next few agents.
type shape struct {
	name string
	next int
}

// neighbours returns the indices of agent i's neighbours, sorted by agent id.
func (s shape) neighbours(i int) []int {
	var all []int
	for k := 1; k <= s.next; k++ {
		all = append(all, (i+k)%agents, (i+agents-k)%agents)
	}
	slices.Sort(all)
	return all
}

// broker is a broker with our access rules and a password for each agent of both federations.
type broker struct {
	name string
	open func(b *testing.B) *site
}

type site struct {
	address string
	cpu     func() time.Duration
}

// cost is the elapsed time of some steps, and the CPU time that this process and the broker used for them.
type cost struct{ wall, cpu time.Duration }

var epoch = time.Now()

func (s *site) now(b *testing.B) cost {
	var own syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &own); err != nil {
		b.Fatal(err)
	}
	return cost{time.Since(epoch), time.Duration(own.Utime.Nano()+own.Stime.Nano()) + s.cpu()}
}

func (s *site) since(b *testing.B, began cost) cost {
	now := s.now(b)
	return cost{now.wall - began.wall, now.cpu - began.cpu}
}

var subjects = []broker{
	{"mosquitto", func(b *testing.B) *site {
		m := brokers.NewMosquitto(b, shipped.PlainConf)
		var ids []wire.AgentID
		for i := range agents {
			ids = append(ids, idOf(i))
		}
		if err := launch.WriteMosquittoAccess(m.Dir, ids, func(user string) string { return "password of " + user },
			federation, rival); err != nil {
			b.Fatal(err)
		}
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

// login returns the options with which a client connects to the broker.
func login(address, federation string, i int) mqtt.Options {
	client := clientOf(federation, i)
	return mqtt.Options{URL: "tcp://" + address, ClientID: client, Username: client, Password: "password of " + client}
}

// BenchmarkMixing runs all contestants alternately on one broker and reports the medians over all iterations.
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

// results contains the measurements of each contestant: steps per second of elapsed time, and steps per second of CPU
// time.
type results map[string]*[2][]float64

func (r results) add(name string, c cost, steps int) {
	if r[name] == nil {
		r[name] = new([2][]float64)
	}
	for i, d := range []time.Duration{c.wall, c.cpu} {
		r[name][i] = append(r[name][i], float64(steps)/d.Seconds())
	}
}

// report reports the median number of steps and messages per second, and the speed of fedmesh relative to paho.
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
	b.ReportMetric(0, "ns/op") // Omit the time per operation, which has no meaning in this benchmark.
}
