package demo

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/store"
)

// Result is what the demo found: R² over all stations on the held-out year.
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
	// Model is the SHA-256 of the model's vector: equal runs have equal ones.
	Model string `json:"model"`

	alone []Station
}

func newResult(b *Baselines, p *progress) *Result {
	r := &Result{
		Event: "result", Task: "air", Rounds: p.Round, Federated: p.R2, AloneWorst: b.Alone[0].R2,
		Central: b.Central, Persistence: b.Persistence, alone: b.Alone,
	}
	for _, s := range b.Alone {
		r.AloneMean += s.R2 / float64(len(b.Alone))
		r.AloneWorst = min(r.AloneWorst, s.R2)
	}
	return r
}

// writeTable shows the result to a person.
func writeTable(w io.Writer, r *Result) {
	fmt.Fprintf(w, "\nR² over all stations on the held-out year (1 is perfect, 0 is the mean, below 0 is worse than the mean)\n\n")
	for _, s := range r.alone {
		fmt.Fprintf(w, "  %-28s %7.3f   %d rows\n", s.Name+" alone", s.R2, s.Rows)
	}
	fmt.Fprintf(w, "\n  %-28s %7.3f   worst %.3f; ridge regression, λ = %d\n", "each station alone, mean", r.AloneMean, r.AloneWorst, ridgeLambda)
	fmt.Fprintf(w, "  %-28s %7.3f   what is now will be in six hours\n", "persistence", r.Persistence)
	fmt.Fprintf(w, "  %-28s %7.3f   %d rounds; every row stayed where it was\n", "federated", r.Federated, r.Rounds)
	fmt.Fprintf(w, "  %-28s %7.3f   all rows in one place; ridge regression, λ = %d\n", "centralised", r.Central, ridgeLambda)
	fmt.Fprintf(w, "\n%.1f seconds\n", r.Seconds)
}

// writeOut copies the model and the history to the folder that --out names.
func writeOut(dir, stateDir string, r *Result) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	models, _, err := coordinator.OpenModels(stateDir)
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
		store.WriteFile(filepath.Join(dir, "model.safetensors"), model, 0o666),
		store.WriteFile(filepath.Join(dir, "history.jsonl"), history, 0o666),
		store.WriteFile(filepath.Join(dir, "result.json"), append(text, '\n'), 0o666),
	)
}
