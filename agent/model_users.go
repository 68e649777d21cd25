package agent

import (
	"errors"

	"github.com/fedmesh/fedmesh/agent/evaluation"
	"github.com/fedmesh/fedmesh/agent/fetch"
	"github.com/fedmesh/fedmesh/agent/predict"
	"github.com/fedmesh/fedmesh/wire"
)

// predictHooks returns what prediction needs of the agent.
func (a *Agent) predictHooks() predict.Hooks {
	return predict.Hooks{
		Tasks: a.taskData, Source: a.cfg.TaskData.Source, HoldsOutRows: a.cfg.TaskData.HeldOutShare > 0,
		BaseModel: a.baseModel, Parameters: a.predictionParameters, Finetune: a.prepareFinetuning,
		FetchModel:   a.fetchModel,
		FetchedModel: func() (wire.Digest, bool) { return a.fetch.Underway(fetch.Model) },
		FetchFile: func(ref wire.BlobRef, done func(predict.File, error)) {
			a.fetch.Fetch(ref, fetch.ModelFile, func(b *fetch.Blob, err error) {
				if !errors.Is(err, fetch.ErrCanceled) {
					done(b, err)
				}
			})
		},
		FetchedFile: func() (wire.Digest, bool) { return a.fetch.Underway(fetch.ModelFile) },
		Program:     func() (predict.Program, error) { return a.opaqueTrainer() },
	}
}

// evaluationHooks returns what evaluation needs of the agent.
func (a *Agent) evaluationHooks() evaluation.Hooks {
	return evaluation.Hooks{
		Tasks: a.taskData, Parameters: a.predictionParameters, FetchModel: a.fetchModel,
		Model: func(hash wire.Digest) []float32 {
			if w := a.baseModel(hash); w != nil {
				return w
			}
			return a.predict.ModelInUse(hash)
		},
		FetchedModel: func() (wire.Digest, bool) { return a.fetch.Underway(fetch.Model) },
		Program:      func() (evaluation.Program, error) { return a.opaqueTrainer() },
	}
}

// baseModel returns the base model of the round under way if it is that model and is in memory, or nil.
func (a *Agent) baseModel(hash wire.Digest) []float32 {
	if a.baseModelHash == hash {
		return a.base
	}
	return nil
}
