package demo

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/round/evaluation"
	"github.com/fedmesh/fedmesh/store"
)

// Result is the result of the demo. Scores are R² over all stations on the held-out year.
type Result struct {
	Event       string  `json:"event"`
	Task        string  `json:"task"`
	Rounds      int     `json:"rounds"`
	Federated   float64 `json:"federated"`
	AloneMean   float64 `json:"alone_mean"`
	AloneWorst  float64 `json:"alone_worst"`
	Central     float64 `json:"central"`
	Persistence float64 `json:"persistence"`
	Seconds     float64 `json:"seconds"`
	// Model is the hash of the model's parameters. Runs with equal results have equal hashes.
	Model string `json:"model"`

	*Predictions            // set only if the agents received readings over MQTT and published forecasts
	Evaluated    *evaluated `json:"evaluated,omitempty"` // last evaluation by the agents; may be nil

	alone []stationScore
	rows  int    // total number of training rows of all stations
	out   string // folder for the output files; "" means none
}

// evaluated is the agents' evaluation of a model.
type evaluated struct {
	Version int `json:"version"`
	evaluation.Result
}

func newResult(b *baselineScores, p *progress) *Result {
	r := &Result{
		Event: "result", Task: "air", Rounds: p.Round, Federated: p.R2, AloneWorst: b.Alone[0].R2,
		Central: b.Central, Persistence: b.Persistence, alone: b.Alone, Evaluated: p.evaluated,
	}
	for _, s := range b.Alone {
		r.rows += s.Rows
		r.AloneMean += s.R2 / float64(len(b.Alone))
		r.AloneWorst = min(r.AloneWorst, s.R2)
	}
	return r
}

func writeTable(w io.Writer, r *Result) {
	line := func(name string, r2 float64, format string, args ...any) {
		fmt.Fprintf(w, "  %-26s %7.3f   %s\n", name, r2, fmt.Sprintf(format, args...))
	}
	fmt.Fprintf(w, "\nPrediction quality (R²) of each model in the held-out year at all stations.\n")
	fmt.Fprintf(w, "R² = 1 is perfect; 0 is as good as predicting the mean; below 0 is worse.\n\n")
	fmt.Fprintf(w, "  %-26s %7s\n", "", "R²")
	for _, s := range r.alone {
		line(s.Name+" alone", s.R2, "ridge regression on its own %d rows", s.Rows)
	}
	fmt.Fprintln(w)
	line("a station alone, mean", r.AloneMean, "worst station: %.3f", r.AloneWorst)
	line("persistence", r.Persistence, "no model: predicts the present value for six hours ahead")
	line("federated", r.Federated, "%d rounds; all rows stay at their stations", r.Rounds)
	if e := r.Evaluated; e != nil && e.R2 != nil {
		line("  on held-out rows", *e.R2, "model version %d at %d stations, %d rows in total", e.Version,
			e.ReportingAgents, e.Rows)
	}
	if p := r.Predictions; p != nil {
		line("federated, as received", p.Predicted, "%d forecasts received; %d missing, %d duplicated, %d unexpected",
			p.Forecasts, p.Missing, p.Twice, p.Unexpected)
	}
	line("centralised", r.Central, "ridge regression on all %d rows together", r.rows)
	fmt.Fprintf(w, "\nRidge regressions have λ = %d and standardise columns with the moments of their training rows.\n",
		ridgeLambda)
	fmt.Fprintf(w, "%.1f seconds\n", r.Seconds)
	if r.out != "" {
		fmt.Fprintf(w, "model.safetensors, history.jsonl and result.json are in %s\n", r.out)
	}
}

// writeOut writes the model, the history and the result to the folder of --out.
func writeOut(dir, stateDir string, r *Result) error {
	r.out = dir
	models, _, err := runs.OpenModelsOfCurrentRun(stateDir)
	if err != nil {
		return err
	}
	latest, err := models.Latest()
	if err != nil {
		return err
	}
	model, err := models.Get(latest.Version)
	if err != nil {
		return err
	}
	history, err := os.ReadFile(filepath.Join(stateDir, "history.jsonl"))
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return errors.Join(
		store.LocalDisk.WriteFileDurably(filepath.Join(dir, "model.safetensors"), model, 0o666),
		store.LocalDisk.WriteFileDurably(filepath.Join(dir, "history.jsonl"), history, 0o666),
		store.LocalDisk.WriteFileDurably(filepath.Join(dir, "result.json"), append(text, '\n'), 0o666),
	)
}
