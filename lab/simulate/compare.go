package simulate

import (
	"errors"
	"path/filepath"
	"slices"

	"github.com/fedmesh/fedmesh/lab/plot"
	"github.com/fedmesh/fedmesh/lab/sim"
	"github.com/fedmesh/fedmesh/spec"
)

// baseline returns the FedAvg experiment with which e is compared: the same data and draws, but without mixing (mixing
// matrix W = I). baseline returns false if e does not mix.
func baseline(e sim.Experiment) (sim.Experiment, bool) {
	mixes := e.Algorithm == spec.FedDec && e.Mixing.Graph != sim.NoGraph && e.Load == ""
	e.Name, e.Mixing.Graph, e.Dump = e.Name+": FedAvg", sim.NoGraph, ""
	return e, mixes
}

const (
	roundsFile = "compare_rounds"
	totalFile  = "compare_total_bytes"
)

// writeComparison plots FedDec and FedAvg against server rounds, bytes sent to the server, and all bytes sent.
func writeComparison(dir string, feddec, fedavg *sim.Result) error {
	metric := compared(feddec)
	at := serverRounds(feddec)
	// after a divergence, one result has fewer records than the other
	last := min(len(feddec.Rounds), len(fedavg.Rounds))
	at = slices.DeleteFunc(at, func(i int) bool { return i >= last })
	if metric == "" || len(at) < 2 {
		return nil
	}
	var errs []error
	for _, by := range []struct {
		file, label string
		of          func(r *sim.Result, i int) float64
	}{
		{roundsFile, "server rounds", func(r *sim.Result, i int) float64 {
			return float64(r.Rounds[i]) / float64(r.Experiment.Mixing.ServerEvery)
		}},
		{"compare_uplink_bytes", "bytes from agents to the server",
			func(r *sim.Result, i int) float64 { return r.Metric(uplinkBytes).Mean[i] }},
		{totalFile, "total bytes: to the server, from the server and between agents",
			func(r *sim.Result, i int) float64 { return r.Metric(totalBytes).Mean[i] }},
	} {
		f := &plot.Figure{Title: feddec.Experiment.Name, X: plot.Axis{Label: by.label},
			Y: plot.Axis{Label: label(metric)}}
		f.X.Bytes = by.file != roundsFile
		f.X.Log = by.file == totalFile // the totals of the two algorithms differ by orders of magnitude
		var values []float64
		for _, side := range []struct {
			name string
			r    *sim.Result
		}{{"FedDec", feddec}, {"FedAvg", fedavg}} {
			m := side.r.Metric(metric)
			part, x := sim.Metric{}, []float64(nil)
			for _, i := range at {
				x, part.Mean = append(x, by.of(side.r, i)), append(part.Mean, m.Mean[i])
				if m.CI95 != nil {
					part.CI95 = append(part.CI95, m.CI95[i])
				}
			}
			f.Curves = append(f.Curves, curve(side.name, x, &part))
			values = append(values, part.Mean...)
		}
		f.Y.Log = spreads(values)
		errs = append(errs, plot.WriteFiles(filepath.Join(dir, by.file), f, plot.FigureWidth, plot.FigureHeight))
	}
	return errors.Join(errs...)
}

// compared returns the name of the metric that best measures the quality of a model.
func compared(r *sim.Result) string {
	for _, name := range []string{"excess_risk", "risk", "accuracy", "r2"} {
		if slices.ContainsFunc(r.Metrics, func(m sim.Metric) bool { return m.Name == name }) {
			return name
		}
	}
	return ""
}

// serverRounds returns the indices of the records that follow a server round. If there are none, it returns all
// indices.
func serverRounds(r *sim.Result) []int {
	var all, some []int
	for i, t := range r.Rounds {
		all = append(all, i)
		if t%r.Experiment.Mixing.ServerEvery == 0 {
			some = append(some, i)
		}
	}
	if len(some) < 2 {
		return all
	}
	return some
}
