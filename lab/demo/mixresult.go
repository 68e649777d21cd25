package demo

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/store"
)

// MixResult is the result of a demo of FedDec.
type MixResult struct {
	Event     string         `json:"event"`
	Algorithm spec.Algorithm `json:"algorithm"`
	Task      string         `json:"task"`
	Rounds    int            `json:"rounds"`
	// Final and FedAvgFinal are the final losses of FedDec and FedAvg: (f − f*)/(f(0) − f*) for the regression task,
	// and half the mean squared error on the held-out year for the air task.
	Final       float64 `json:"final"`
	FedAvgFinal float64 `json:"fedavg_final"`
	// UplinkBytes is the total size of the topics and payloads that agents exchanged with the coordinator.
	UplinkBytes       uint64 `json:"uplink_bytes"`
	D2DBytes          uint64 `json:"d2d_bytes"`
	FedAvgUplinkBytes uint64 `json:"fedavg_uplink_bytes"`
	// MeanDrift is the largest value of conservation.Drift over all rounds. It measures how far mixing changed the mean
	// of the parameters.
	MeanDrift         float64 `json:"mean_drift"`
	Flows             uint64  `json:"flows"`
	FlowsLate         uint64  `json:"flows_late"`
	FlowsUnreconciled uint64  `json:"flows_unreconciled"`
	AgentsKilled      int     `json:"agents_killed"`
	SecondEigenvalue  float64 `json:"second_eigenvalue"`
	Alpha             float64 `json:"alpha"`
	Seconds           float64 `json:"seconds"`
	// Model and FedAvgModel are the hashes of the final parameter vectors of FedDec and FedAvg.
	Model       string `json:"model"`
	FedAvgModel string `json:"fedavg_model"`

	out string // folder for the output files; "" means none
}

func (m *mixing) task() string {
	if m.options.Task == "" {
		return "regression"
	}
	return m.options.Task
}

func newMixResult(m *mixing) *MixResult {
	a, d := m.alone.last(), m.mixed.last()
	r := &MixResult{
		Event: "result", Algorithm: spec.FedDec, Task: m.task(), Rounds: len(m.mixed.rounds), Final: d.Loss,
		FedAvgFinal: a.Loss,
		UplinkBytes: d.Uplink, D2DBytes: d.D2D, FedAvgUplinkBytes: a.Uplink, Model: m.mixed.model,
		FedAvgModel: m.alone.model, out: m.options.Out,
	}
	c := m.mixed.account
	r.AgentsKilled = int(m.mixed.revived.Load())
	r.MeanDrift, r.Flows, r.FlowsLate, r.FlowsUnreconciled = c.drift, c.flows, c.late, c.loose
	if g := m.mixed.mesh; g != nil {
		r.SecondEigenvalue, r.Alpha = g.SecondEigenvalue, g.EigenvalueRatio
	}
	return r
}

// write writes the result as text.
func (r *MixResult) write(w io.Writer) {
	fmt.Fprintf(w, "\n%-8s  %12s  %12s  %12s\n", "", "loss", "uplink", "D2D")
	fmt.Fprintf(w, "%-8s  %12.4g  %12s  %12s\n", "FedDec", r.Final, bytesOf(r.UplinkBytes), bytesOf(r.D2DBytes))
	fmt.Fprintf(w, "%-8s  %12.4g  %12s  %12s\n", "FedAvg", r.FedAvgFinal, bytesOf(r.FedAvgUplinkBytes), "-")
	verdict := "FedDec has the lower loss after the same number of rounds, but causes traffic between neighbours"
	if r.Final >= r.FedAvgFinal {
		verdict = "FedDec does not have a lower loss than FedAvg: mixing does not help in this setting"
	}
	fmt.Fprintf(w, "\n%s.\n", verdict)
	fmt.Fprintf(w, "%d flows were applied: %d too late, %d on one end only; the relative drift of the mean is %.2g.\n",
		r.Flows, r.FlowsLate, r.FlowsUnreconciled, r.MeanDrift)
	if r.AgentsKilled > 0 {
		fmt.Fprintf(w, "%d agents were killed and restarted.\n", r.AgentsKilled)
	}
	fmt.Fprintf(w, "%.1f seconds\n", r.Seconds)
	if r.out != "" {
		fmt.Fprintf(w, "result.json, rounds.jsonl and the plots are in %s\n", r.out)
	}
}

// writeOut writes the result and the plots to the output folder, if one is set.
func (m *mixing) writeOut(r *MixResult) error {
	if r.out == "" {
		return nil
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	var rounds bytes.Buffer
	for _, c := range []*course{m.alone, m.mixed} {
		for i := range c.rounds {
			mixJSON{&rounds}.put(c.line(i))
		}
	}
	return errors.Join(
		store.LocalDisk.WriteFileDurably(filepath.Join(r.out, "result.json"), append(text, '\n'), 0o666),
		store.LocalDisk.WriteFileDurably(filepath.Join(r.out, "rounds.jsonl"), rounds.Bytes(), 0o666),
		m.writePlots(r.out),
	)
}
