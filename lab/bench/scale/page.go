package scale

import (
	_ "embed"
	"fmt"
	"math"
	"strings"
	"text/template"
)

//go:embed page.tmpl
var pageText string

// Plan is a federation for which docs/SCALE.md predicts the required resources.
type Plan struct {
	Agents, Drawn float64
	MB            float64 // size of the model in MB
	Period        float64 // time between two rounds in seconds
	Connected     float64 // fraction of the agents that are connected at the same time
}

// Assumptions of the predictions in docs/SCALE.md that are not measured.
const (
	leastTarget  = 1000   // minimum number of hello messages that a round waits for
	surplus      = 1.3    // number of requested hello messages divided by the target number
	announcement = 0.0006 // size in MB of an announcement without a model
	asked        = 2      // number of announcements per round: one to gather agents, one to open the round
	busy         = 0.5    // maximum average utilisation of a CPU core
	gigabit      = 125.0  // capacity of a 1 Gb/s link in MB/s
	owner        = 1      // number of CPU cores that the coordinator's event loop can use
)

// Load returns the load of one round of the plan. A round waits for twice as many hello messages as it has
// participants, and for at least 1,000.
func (p Plan) Load() Load {
	return Load{Rounds: 1, Hellos: math.Min(p.Agents, surplus*math.Max(2*p.Drawn, leastTarget)), Updates: p.Drawn,
		Up: p.Drawn * p.MB, Down: p.Drawn * p.MB, Recipients: asked * p.Agents * p.Connected}
}

// Need contains the predicted resources that a plan requires.
type Need struct {
	Coordinator float64 // CPU time of the coordinator per round in seconds
	Broker      float64
	Network     float64 // MB per round over the broker's network link, sum of both directions
	Memory      float64 // memory of the broker's connections in MB
	Aggregators int     // number of aggregators with one core each, at 50 % utilisation; 0 means none
	Brokers     int     // number of CPU cores for the broker, at 50 % utilisation
	OnNATS      Nodes   // resources of a NATS cluster that replaces Mosquitto
	Links       float64 // number of 1 Gb/s links that the broker requires
	Limit       string  // resource that is exhausted first if rounds become faster
}

// Nodes contains the resources that a NATS cluster requires, summed over all nodes.
type Nodes struct {
	Seconds float64 // CPU time per round in seconds
	Memory  float64 // memory of the connections in MB
	Cores   int     // number of CPU cores at 50 % utilisation
}

// nodes returns the resources that plan p requires from a NATS cluster.
func (c *Cluster) nodes(p Plan) Nodes {
	s := c.Cost(p.Load(), p.Period)
	return Nodes{Seconds: s, Memory: p.Agents * p.Connected * c.Connection.Bytes / 1e6,
		Cores: int(math.Ceil(s / (busy * p.Period)))}
}

// Need predicts the resources that plan p requires.
func (f *Fit) Need(p Plan) Need {
	l := p.Load()
	c, b := l.ofCoordinator(), l.ofBroker()
	n := Need{Coordinator: f.Coordinator.Cost(&c), Broker: f.Broker.Cost(&b),
		Network: 2*(l.Up+l.Down) + announcement*l.Recipients,
		Memory:  p.Agents * p.Connected * f.Connection.Bytes / 1e6}
	n.Links = n.Network / p.Period / gigabit
	n.Brokers = int(math.Ceil(n.Broker / (busy * p.Period)))
	if share := n.Coordinator / (owner * busy * p.Period); share > 1 {
		n.Aggregators = int(math.Ceil(share))
	}
	n.OnNATS = f.Cluster.nodes(p)
	n.Limit = n.first(p)
	return n
}

// first returns the name of the resource that limits the speed of rounds, and the shortest possible time between
// rounds.
func (n *Need) first(p Plan) string {
	most, what := n.Coordinator/busy, "the coordinator's core"
	if t := n.Broker / busy; t > most {
		most, what = t, "the broker's core"
	}
	if t := n.Network / gigabit; t > most {
		most, what = t, "a link of 1 Gb/s"
	}
	return fmt.Sprintf("%s: %s", what, period(most))
}

// period formats a duration of s seconds for the tables.
func period(s float64) string {
	if s < 1 {
		return "under 1 s"
	}
	return figure(s) + " s"
}

// figure formats a number with two significant digits.
func figure(x float64) string {
	if x < 10 {
		return fmt.Sprintf("%.2g", x)
	}
	unit := math.Pow(10, math.Floor(math.Log10(x))-1)
	return fmt.Sprintf("%.0f", math.Round(x/unit)*unit)
}

// plans returns the plans in docs/SCALE.md: up to 10⁶ agents, up to 10⁴ participants per round, and models of up to 10
// MB.
func plans() (all []Plan) {
	for _, p := range []Plan{{Agents: 1e3, Drawn: 100}, {Agents: 1e4, Drawn: 100}, {Agents: 1e4, Drawn: 1e3},
		{Agents: 1e5, Drawn: 1e3}, {Agents: 1e5, Drawn: 1e4}, {Agents: 1e6, Drawn: 1e3}, {Agents: 1e6, Drawn: 1e4}} {
		for _, mb := range []float64{0.01, 1, 10} {
			p.MB, p.Period, p.Connected = mb, 60, 1
			all = append(all, p)
			if p.Agents >= 1e6 {
				p.Connected = 0.1
				all = append(all, p)
			}
		}
	}
	return all
}

// Page returns the complete Markdown text of docs/SCALE.md.
func (f *Fit) Page() (string, error) {
	c, b, n := f.errors()
	functions := template.FuncMap{
		"micro":   func(s float64) string { return fmt.Sprintf("%.0f", 1e6*s) },
		"milli":   func(s float64) string { return fmt.Sprintf("%.1f", 1e3*s) },
		"kib":     func(b float64) string { return fmt.Sprintf("%.1f", b/1024) },
		"times":   figure,
		"idle":    func(cores float64) string { return fmt.Sprintf("%.2f", cores) },
		"percent": func(x float64) string { return fmt.Sprintf("%+.0f %%", 100*x) },
	}
	t, err := template.New("page").Funcs(functions).Parse(pageText)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	err = t.Execute(&out, map[string]any{"Fit": f, "Table": f.table(), "OffCoordinator": c, "OffBroker": b,
		"OffCluster": n,
		"Alone":      f.alone(), "Measured": f.measured(), "OnNATS": f.Cluster.measured(),
		"Recipients": f.Cluster.Broker.Recipient / f.Broker.Recipient,
		"Megabytes":  f.Cluster.Broker.MB / f.Broker.MB})
	return out.String(), err
}

// table returns a Markdown table of the predicted resources with one row per plan.
func (f *Fit) table() string {
	var out strings.Builder
	for _, p := range plans() {
		n := f.Need(p)
		aggregators := "–"
		if n.Aggregators > 0 {
			aggregators = fmt.Sprint(n.Aggregators)
		}
		fmt.Fprintf(&out, "| %s | %.0f %% | %s | %g MB | %s s | %s s | %s GB | %s | %s GB | %s | %d | %s | ",
			many(p.Agents), 100*p.Connected, many(p.Drawn), p.MB, figure(n.Coordinator), figure(n.Broker),
			figure(n.Network/1e3), figure(n.Links), figure(n.Memory/1e3), aggregators, n.Brokers, n.Limit)
		fmt.Fprintf(&out, "%s s | %s GB | %d |\n", figure(n.OnNATS.Seconds), figure(n.OnNATS.Memory/1e3),
			n.OnNATS.Cores)
	}
	return out.String()
}

// alone returns a text that lists, for several model sizes, how many participants the coordinator can serve per round
// without aggregators. alone assumes one round per minute.
func (f *Fit) alone() string {
	var out strings.Builder
	for _, mb := range []float64{0.01, 0.1, 1, 10} {
		most := 0.0
		for l := 1.0; l <= 1e6; l *= 1.01 {
			if f.Need(Plan{Agents: 1e6, Drawn: l, MB: mb, Period: 60, Connected: 1}).Aggregators > 0 {
				break
			}
			most = l
		}
		fmt.Fprintf(&out, "| %g MB | %s |\n", mb, figure(most))
	}
	return out.String()
}

// measured returns a Markdown table that compares the measured costs of each federation with the predicted costs.
func (f *Fit) measured() string {
	var out strings.Builder
	for _, s := range append(f.Samples[:len(f.Samples):len(f.Samples)], f.Held) {
		c, b := s.Load.ofCoordinator(), s.Load.ofBroker()
		fmt.Fprintf(&out, "%s %.2f s | %.2f s | %.2f s | %.2f s |\n", s.begin(), s.Coordinator, f.Coordinator.Cost(&c),
			s.Broker, f.Broker.Cost(&b))
	}
	return out.String()
}

// measured returns a Markdown table that compares the measured costs of the NATS cluster with the predicted costs.
func (c *Cluster) measured() string {
	var out strings.Builder
	for _, s := range append(c.Samples[:len(c.Samples):len(c.Samples)], c.Held) {
		fmt.Fprintf(&out, "%s %.1f s | %.2f s | %.2f s |\n", s.begin(), s.Seconds, s.Broker, c.Cost(s.Load, s.Seconds))
	}
	return out.String()
}

// begin returns the first cells of a table row: the agents, the participants and the sizes of the measured federation.
func (s *Sample) begin() string {
	return fmt.Sprintf("| %d | %d | %.0f kB | %.0f | %.0f |", s.Agents, s.Drawn, 1e3*s.Load.Up/s.Load.Updates,
		s.Load.Rounds, s.Load.Hellos)
}

// many formats a number of agents for the tables.
func many(n float64) string {
	if n < 1e4 {
		return fmt.Sprintf("%.0f", n)
	}
	return fmt.Sprintf("10%s", map[int]string{4: "⁴", 5: "⁵", 6: "⁶"}[int(math.Round(math.Log10(n)))])
}
