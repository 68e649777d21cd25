package demo

import (
	"encoding/json"
	"fmt"
	"io"
	"math"

	"github.com/fedmesh/fedmesh/spec"
)

// mixDisplay shows the progress and the result of the FedDec demo as lines of text or as JSON.
type mixDisplay interface {
	start(m *mixing, site string)
	round(m *mixing, c *course, p point)
	alone(m *mixing) // called when the FedAvg run has finished
	result(r *MixResult)
}

func newMixDisplay(o Options) mixDisplay {
	if o.JSON {
		return mixJSON{o.Stdout}
	}
	return mixLines{o.Stdout}
}

// recording is a display that stores the result of each round in a course and passes it to the mixDisplay.
type recording struct {
	mixing *mixing
	course *course
}

func (r *recording) start(heading)         {}
func (r *recording) gathering(*progress)   {}
func (r *recording) standardised(int, int) {}
func (r *recording) round(*progress)       {}
func (r *recording) result(*Result)        {}
func (r *recording) failed()               {}

func (r *recording) model(p *progress) {
	c := r.course
	pt := point{Loss: r.mixing.scene.loss(p.Held), R2: p.R2, Uplink: c.uplink.Load(), D2D: c.site.Load()}
	pt.Consensus = c.audit.newest()
	c.mesh = p.Mesh
	c.rounds = append(c.rounds, pt)
	r.mixing.show.round(r.mixing, c, pt)
}

// mixLines is a mixDisplay that writes lines of text.
type mixLines struct{ w io.Writer }

func (d mixLines) start(m *mixing, site string) {
	o, s := &m.options, m.scene
	fmt.Fprintf(d.w, "fedmesh demo: FedDec compared with FedAvg\n%s\n", s.what)
	fmt.Fprintf(d.w, "%d agents, %d rounds of %d local steps, %d uploads per round, seed %d\n", len(s.files.stations),
		s.rounds, s.task.Steps.Max, s.uploads, o.Seed)
	if site != "" {
		fmt.Fprintf(d.w, "neighbours use a separate broker: %s\n", site)
	} else {
		fmt.Fprintf(d.w, "neighbours use the coordinator's broker: %s\n", o.Broker)
	}
	if o.faulty() {
		fmt.Fprintf(d.w, "simulated faults between neighbours: %.3g %% of messages lost, %.3g %% duplicated, "+
			"delays up to %v; %d agents killed and restarted\n",
			100*o.Loss, 100*o.Duplicates, o.Delay, o.Kill)
	}
	fmt.Fprintln(d.w)
}

func (d mixLines) alone(m *mixing) {
	p := m.alone.last()
	fmt.Fprintf(d.w, "FedAvg finished: loss %s after %d rounds, %s uplink traffic\n\n", loss(p.Loss),
		len(m.alone.rounds), bytesOf(p.Uplink))
}

func (d mixLines) round(m *mixing, c *course, p point) {
	if c.algorithm != spec.FedDec {
		return
	}
	n := len(c.rounds)
	if n == 1 && c.mesh != nil {
		fmt.Fprintf(d.w, "%d edges, |λ̂₂| = %.4f, α = %.3g\n", len(c.mesh.Edges), c.mesh.SecondEigenvalue,
			c.mesh.EigenvalueRatio)
	}
	if every := max(1, m.scene.rounds/20); n%every != 0 && n != 1 && n != m.scene.rounds {
		return
	}
	beside := math.NaN()
	if n <= len(m.alone.rounds) {
		beside = m.alone.rounds[n-1].Loss
	}
	fmt.Fprintf(d.w, "round %3d/%d  loss %s  FedAvg %s  Σ‖x−x̄‖² %s  uplink %s  D2D %s\n",
		n, m.scene.rounds, loss(p.Loss), loss(beside), loss(p.Consensus), bytesOf(p.Uplink), bytesOf(p.D2D))
}

func (d mixLines) result(r *MixResult) { r.write(d.w) }

// loss formats a loss, in scientific notation if it is very large or very small.
func loss(x float64) string {
	if math.IsNaN(x) {
		return "    -    "
	}
	return fmt.Sprintf("%9.3g", x)
}

func bytesOf(n uint64) string {
	switch {
	case n >= 1e6:
		return fmt.Sprintf("%6.1f MB", float64(n)/1e6)
	case n >= 1e3:
		return fmt.Sprintf("%6.1f kB", float64(n)/1e3)
	}
	return fmt.Sprintf("%6d B ", n)
}

type mixJSON struct{ w io.Writer }

func (d mixJSON) put(v any) {
	_ = json.NewEncoder(d.w).Encode(v)
}

func (d mixJSON) start(m *mixing, site string) {
	s := m.scene
	d.put(map[string]any{
		"event": "start", "algorithm": spec.FedDec, "task": m.task(), "agents": len(s.files.stations),
		"features": len(s.files.features), "rounds": s.rounds,
		"local_steps": s.task.Steps.Max, "uploads": s.uploads, "seed": m.options.Seed, "broker": m.options.Broker,
		"d2d_broker": site,
	})
}

func (d mixJSON) alone(*mixing) {}

func (d mixJSON) round(_ *mixing, c *course, _ point) { d.put(c.line(len(c.rounds) - 1)) }

// line returns the result of round i as a map that is encoded as JSON.
func (c *course) line(i int) map[string]any {
	p := c.rounds[i]
	line := map[string]any{
		"event": "round", "algorithm": c.algorithm, "round": i + 1, "loss": finite(p.Loss), "r2": finite(p.R2),
		"uplink_bytes": p.Uplink, "d2d_bytes": p.D2D,
	}
	if c.algorithm == spec.FedDec {
		line["consensus"] = finite(p.Consensus)
		if c.mesh != nil {
			line["second_eigenvalue"], line["alpha"], line["edges"] = finite(c.mesh.SecondEigenvalue),
				finite(c.mesh.EigenvalueRatio), len(c.mesh.Edges)
		}
	}
	return line
}

func (d mixJSON) result(r *MixResult) { d.put(r) }
