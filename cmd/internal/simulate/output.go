package simulate

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/fedmesh/fedmesh/sim"
	"github.com/fedmesh/fedmesh/sim/plot"
)

// write writes all files of a result.
func write(dir string, r *sim.Result) error {
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	errs := []error{
		os.WriteFile(filepath.Join(dir, "result.json"), append(text, '\n'), 0o666),
		os.WriteFile(filepath.Join(dir, "curves.csv"), curves(r), 0o666),
	}
	for i := range r.Metrics {
		if len(r.Rounds) > 1 {
			errs = append(errs, writePlot(dir, r, &r.Metrics[i]))
		}
	}
	return errors.Join(errs...)
}

// curves is a table: the rounds, and the mean of each metric with the half width of its interval.
func curves(r *sim.Result) []byte {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	header := []string{"round"}
	for _, m := range r.Metrics {
		header = append(header, m.Name)
		if m.CI95 != nil {
			header = append(header, m.Name+"_ci95")
		}
	}
	lines := [][]string{header}
	number := func(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
	for i, round := range r.Rounds {
		line := []string{strconv.Itoa(round)}
		for _, m := range r.Metrics {
			line = append(line, number(m.Mean[i]))
			if m.CI95 != nil {
				line = append(line, number(m.CI95[i]))
			}
		}
		lines = append(lines, line)
	}
	_ = w.WriteAll(lines) // to memory
	return b.Bytes()
}

// axes are the labels of the metrics that the simulator knows.
var axes = map[string]string{
	"msd": "E‖w⁰ − w‖²", "excess_risk": "J(w) − J(w⁰)", "risk": "J(w)", "gradient_norm2": "‖∇J(w)‖²",
	"consensus": "mean ‖z − mean z‖²", "shadow_excess_risk": "excess risk over the local steps", "r2": "R²",
}

func writePlot(dir string, r *sim.Result, m *sim.Metric) error {
	c := plot.Curve{Name: m.Name, Y: m.Mean}
	positive := true
	for i, round := range r.Rounds {
		c.X = append(c.X, float64(round))
		positive = positive && m.Mean[i] >= 0
		if m.CI95 != nil {
			c.Low, c.High = append(c.Low, m.Mean[i]-m.CI95[i]), append(c.High, m.Mean[i]+m.CI95[i])
		}
	}
	label := axes[m.Name]
	if label == "" {
		label = m.Name
	}
	title := r.Experiment.Name
	if m.CI95 != nil {
		title = fmt.Sprintf("%s: mean of %d runs, 95 %% band", title, len(m.Runs))
	}
	f := plot.Figure{Title: title, X: plot.Axis{Label: "round"}, Y: plot.Axis{Label: label, Log: positive && spreads(m.Mean)}, Curves: []plot.Curve{c}}
	if r.Experiment.Algorithm == sim.FedDec {
		f.X.Label = "iteration t"
	}
	var image, vector bytes.Buffer
	if err := f.Validate(); err != nil {
		return err
	}
	if err := errors.Join(plot.PNG(&image, &f, plot.FigureWidth, plot.FigureHeight), plot.SVG(&vector, &f, plot.FigureWidth, plot.FigureHeight)); err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(dir, m.Name+".png"), image.Bytes(), 0o666),
		os.WriteFile(filepath.Join(dir, m.Name+".svg"), vector.Bytes(), 0o666))
}

// spreads tells whether the values differ so much that only a logarithmic axis shows them all.
func spreads(values []float64) bool {
	low, high := 0.0, 0.0
	for _, v := range values {
		if v > 0 && (low == 0 || v < low) {
			low = v
		}
		high = max(high, v)
	}
	return low > 0 && high > 10*low
}
