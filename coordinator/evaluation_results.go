package coordinator

import (
	"encoding/json"
	"path/filepath"

	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/evaluation"
	"github.com/fedmesh/fedmesh/wire"
)

// KindEvaluation is the kind of a line of the history that has an evaluation, and no round.
const KindEvaluation = "evaluation"

// modelShape is what the owner must know of the announced task's problem, which folds change beside it.
type modelShape struct {
	elements        int     // of a training update
	isExternalModel bool    // nobody here knows what the model computes
	classes         int     // 0 of a regression
	targetScale     float64 // of a regression's targets: their scale where they are standardised, else 1
}

func (w *modelState) shape() modelShape {
	f := modelShape{w.compiledTask.Schema(wire.KindTraining).Len(), w.compiledTask.Task.External.Enabled(),
		w.compiledTask.Model.Architecture().ClassCount(), 1}
	if scale := w.compiledTask.Standardization().Scale; f.classes == 0 && len(scale) > 0 {
		f.targetScale = float64(scale[len(scale)-1])
	}
	return f
}

// handleEvaluationReport tells what agents say of a model, and writes it to the history if any says something.
func (c *Coordinator) handleEvaluationReport(e round.ReportEvaluation) {
	r := e.Pool.Summarize(c.modelShape.targetScale)
	c.cfg.Observer.Observe(ModelEvaluated{Version: e.Version, RespondingAgents: e.RespondingAgents,
		PresentAgents: e.PresentAgents,
		TooFewAgents:  e.TooFewAgents, Result: r})
	if r.ReportingAgents > 0 {
		line := HistoryEntry{Time: e.At, Run: e.Run, Round: e.Round, Kind: KindEvaluation, Version: e.Version,
			Evaluation: &r}
		c.queueWrite("write a line of the history",
			func() error { return c.stateFolder.appendEvaluationToHistory(line) })
	}
}

// appendEvaluationToHistory appends the line of an evaluation, unless the history has one of that model: a coordinator
// that was killed may have asked once more.
func (d *stateFolder) appendEvaluationToHistory(line HistoryEntry) error {
	for text, err := range d.disk.NewestHistoryLines(filepath.Join(d.dir, historyFile)) {
		var h HistoryEntry
		if err != nil || json.Unmarshal(text, &h) != nil || h.Run != line.Run || h.Version < line.Version {
			break
		}
		if h.Kind == KindEvaluation && h.Version == line.Version {
			return nil
		}
	}
	return d.history.Append(line)
}

// stripMismatchedEvaluation takes the evaluation out of a hello if it has not the form of the task's, and tells so.
func (c *Coordinator) stripMismatchedEvaluation(agent wire.AgentID, m *wire.Hello) error {
	if evaluation.HasFormOfModel(&m.Evaluation, c.modelShape.isExternalModel, c.modelShape.classes) {
		return nil
	}
	m.Evaluation = wire.Evaluation{}
	return host.NewDropError(DropMalformed, "what %s says of a model is not of the task's kind, and is not counted",
		agent)
}
