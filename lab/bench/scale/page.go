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

// Plan is a federation that the page foretells.
type Plan struct {
	Agents, Drawn float64
	MB            float64 // of the model
	Period        float64 // s, from round to round
	Connected     float64 // share of the agents that are connected at a time
}

// Page constants: what the measurements do not say.
const (
	leastTarget  = 1000   // hellos that a round waits for, at least
	surplus      = 1.3    // hellos that are asked for, in targets
	announcement = 0.0006 // MB, of one without a model in it
	asked        = 2      // announcements of a round: gathering, open
	busy         = 0.5    // of a core that may be in use on average
	gigabit      = 125.0  // MB/s
	owner        = 1      // cores that the coordinator's goroutine has
)

// Load is that of one round: the target of hellos is twice the participants, and 1,000 at least.
func (p Plan) Load() Load {
	return Load{Rounds: 1, Hellos: math.Min(p.Agents, surplus*math.Max(2*p.Drawn, leastTarget)), Updates: p.Drawn,
		Up: p.Drawn * p.MB, Down: p.Drawn * p.MB, Recipients: asked * p.Agents * p.Connected}
}

// Need is what a plan takes.
type Need struct {
	Coordinator float64 // processor time of a round, s
	Broker      float64
	Network     float64 // MB of a round over the broker's link, in and out together
	Memory      float64 // MB of the broker's connections
	Aggregators int     // of one core each, half of it in use; 0 = the coordinator alone
	Brokers     int     // the same
	OnNATS      Nodes   // instead of it
	Links       float64 // Gb/s at the broker
	Limit       string  // what is full first
}

// Nodes is what a cluster of NATS takes, all of its nodes together.
type Nodes struct {
	Seconds float64 // processor time of a round
	Memory  float64 // MB of its connections
	Cores   int     // half in use
}

// nodes is what a plan takes of a cluster.
func (c *Cluster) nodes(p Plan) Nodes {
	s := c.Cost(p.Load(), p.Period)
	return Nodes{Seconds: s, Memory: p.Agents * p.Connected * c.Connection.Bytes / 1e6,
		Cores: int(math.Ceil(s / (busy * p.Period)))}
}

// Need of a plan, by the fit.
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

// first is what is full first, if rounds came faster.
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

// period writes a time of a round.
func period(s float64) string {
	if s < 1 {
		return "under 1 s"
	}
	return figure(s) + " s"
}

// figure writes a number with two digits.
func figure(x float64) string {
	if x < 10 {
		return fmt.Sprintf("%.2g", x)
	}
	unit := math.Pow(10, math.Floor(math.Log10(x))-1)
	return fmt.Sprintf("%.0f", math.Round(x/unit)*unit)
}

// plans are the page's: N up to 10⁶, L up to 10⁴, models up to 10 MB.
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

// Page writes docs/SCALE.md.
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

// table has a line for each plan.
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

// alone is how many participants the coordinator alone has time for, by the model's MB, at a round a minute.
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

// measured has a line for each federation: what was measured of it, and what the formula says.
func (f *Fit) measured() string {
	var out strings.Builder
	for _, s := range append(f.Samples[:len(f.Samples):len(f.Samples)], f.Held) {
		c, b := s.Load.ofCoordinator(), s.Load.ofBroker()
		fmt.Fprintf(&out, "%s %.2f s | %.2f s | %.2f s | %.2f s |\n", s.begin(), s.Coordinator, f.Coordinator.Cost(&c),
			s.Broker, f.Broker.Cost(&b))
	}
	return out.String()
}

// measured has such lines, of the brokers.
func (c *Cluster) measured() string {
	var out strings.Builder
	for _, s := range append(c.Samples[:len(c.Samples):len(c.Samples)], c.Held) {
		fmt.Fprintf(&out, "%s %.1f s | %.2f s | %.2f s |\n", s.begin(), s.Seconds, s.Broker, c.Cost(s.Load, s.Seconds))
	}
	return out.String()
}

// begin is the begin of a line: the federation.
func (s *Sample) begin() string {
	return fmt.Sprintf("| %d | %d | %.0f kB | %.0f | %.0f |", s.Agents, s.Drawn, 1e3*s.Load.Up/s.Load.Updates,
		s.Load.Rounds, s.Load.Hellos)
}

// many writes a number of agents.
func many(n float64) string {
	if n < 1e4 {
		return fmt.Sprintf("%.0f", n)
	}
	return fmt.Sprintf("10%s", map[int]string{4: "⁴", 5: "⁵", 6: "⁶"}[int(math.Round(math.Log10(n)))])
}
