package demo

import (
	"fmt"
	"io"
	"math"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/fedmesh/fedmesh/round/rule"
)

// display shows a run: live on a terminal, as lines of text, or as JSON.
type display interface {
	start(h heading)
	gathering(p *progress)
	standardised(rows, agents int)
	round(p *progress) // called when the participants are drawn and when an update arrives
	model(p *progress) // called when a round is complete and a new model is available
	result(r *Result)
	failed() // called when the run fails; the caller reports the error itself
}

// heading describes a run before it starts: the broker, the agents, the model and the options.
type heading struct {
	Broker   string   `json:"broker"`
	Embedded bool     `json:"embedded"`
	Agents   int      `json:"agents"`
	Features int      `json:"features"`
	Model    string   `json:"model"`
	Rounds   int      `json:"rounds"`
	L        int      `json:"participants"`
	Seed     uint64   `json:"seed"`
	Rule     string   `json:"rule"`
	Attack   string   `json:"attack,omitempty"` // attack that the first Liars agents carry out; "" means none
	Liars    int      `json:"attackers,omitempty"`
	Metrics  string   `json:"metrics,omitempty"` // URL at which the metrics are served
	Stations []string `json:"-"`
}

// newDisplay returns the display that suits the output, and the writer to which log lines must be written.
func newDisplay(o Options) (display, io.Writer) {
	if o.JSON {
		return jsonLines{o.Stdout}, o.Stderr
	}
	if f, ok := o.Stdout.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		size := func() (width, height int) {
			width, height, err := term.GetSize(int(f.Fd()))
			if err != nil {
				return 80, 24
			}
			return width, height
		}
		l := &live{plain: plain{o.Stdout}, size: size, stderr: o.Stderr}
		return l, l
	}
	return plain{o.Stdout}, o.Stderr
}

// plain is a display that writes one line of text per round.
type plain struct{ w io.Writer }

func (d plain) start(h heading) {
	broker := "broker"
	if h.Embedded {
		broker = "embedded broker"
	}
	fmt.Fprintf(d.w, "fedmesh demo: predict air pollution (log PM2.5) six hours ahead from %d features\n", h.Features)
	fmt.Fprintf(d.w, "%d agents, one per weather station in Beijing; each keeps its own measurements of three months\n",
		h.Agents)
	fmt.Fprintf(d.w, "%s model, %d rounds with %d of %d agents each, seed %d, %s %s\n", h.Model, h.Rounds, h.L,
		h.Agents, h.Seed, broker, h.Broker)
	if h.Rule != rule.Mean || h.Liars > 0 {
		fmt.Fprintf(d.w, "aggregation rule: %s\n", h.Rule)
	}
	if h.Liars > 0 {
		fmt.Fprintf(d.w, "%d agents send false updates: %s\n", h.Liars, h.Attack)
	}
	if h.Metrics != "" {
		fmt.Fprintf(d.w, "metrics: %s\n", h.Metrics)
	}
	fmt.Fprintln(d.w)
}

func (d plain) gathering(*progress) {}

func (d plain) standardised(rows, agents int) {
	fmt.Fprintf(d.w, "columns standardised with sums over %d rows of %d agents; all rows stay on the agents\n", rows,
		agents)
}

func (d plain) round(*progress) {}

func (d plain) model(p *progress) {
	fmt.Fprintf(d.w, "round %3d/%d  loss %s  R² %s  participants: %s\n", p.Round, p.Rounds, number(p.Loss),
		number(p.R2),
		tookPart(p))
}

func (d plain) result(r *Result) { writeTable(d.w, r) }

func (d plain) failed() {}

// tookPart returns a list of the participants. It adds the number of local steps E of each participant whose update has
// arrived.
func tookPart(p *progress) string {
	names := make([]string, len(p.Participants))
	for i, a := range p.Participants {
		names[i] = string(a)
		if e, in := p.Done[a]; in {
			names[i] = fmt.Sprintf("%s (E=%d)", a, e)
		}
	}
	return strings.Join(names, ", ")
}

// number formats a loss or a score with four decimals. NaN becomes a dash.
func number(x float64) string {
	if math.IsNaN(x) {
		return "  -   "
	}
	return fmt.Sprintf("%.4f", x)
}
