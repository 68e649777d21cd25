package agent

import (
	"errors"

	"github.com/fedmesh/fedmesh/agent/evaluation"
	"github.com/fedmesh/fedmesh/agent/fetch"
	"github.com/fedmesh/fedmesh/agent/predict"
	"github.com/fedmesh/fedmesh/agent/training"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/wire"
)

// roundModel is the base model of the round under way.
type roundModel struct {
	hash       wire.Digest
	parameters []float32 // nil until it is here
}

// fetchBaseModel provides the base model of a round: the model in use if it is the same, or else it is fetched.
func (a *Agent) fetchBaseModel(ref wire.BlobRef) {
	a.base.hash = ref.Hash
	if w := a.predict.ModelInUse(ref.Hash); w != nil {
		a.base.parameters = w
		a.stepRoundMachine(agentround.ModelFetched{Base: ref.Hash})
		return
	}
	if !a.fetch.Renew(ref, fetch.Model) {
		a.fetchModel(ref)
	}
}

// fetchModel fetches a base model. Training, prediction and evaluation share each model that arrives.
func (a *Agent) fetchModel(ref wire.BlobRef) {
	a.fetch.Fetch(ref, fetch.Model, func(b *fetch.Blob, err error) { a.receiveBaseModel(ref, b, err) })
}

// modelArrived gives a base model to evaluation and prediction, or the reason why it is not available.
func (a *Agent) modelArrived(hash wire.Digest, w []float32, err error) {
	if err == nil {
		a.evaluation.ModelArrived(hash, w)
	}
	a.predict.ModelArrived(hash, w, err)
}

// receiveBaseModel decodes a base model that has arrived, or reports that it is not available.
func (a *Agent) receiveBaseModel(ref wire.BlobRef, blob *fetch.Blob, err error) {
	if errors.Is(err, fetch.ErrCanceled) {
		a.predict.ModelFetchCanceled(ref.Hash)
		return
	}
	if err != nil {
		a.stepRoundMachine(agentround.ModelFetched{Base: ref.Hash, Failed: true})
		a.modelArrived(ref.Hash, nil, err)
		return
	}
	of := a.taskData.Announced() // of the announced task, whose model it is; its rows may not fit
	if ref.Hash == a.base.hash {
		of = a.taskData.Prepared().LocalTask
	}
	if of == nil || of.CompiledTask == nil {
		a.modelArrived(ref.Hash, nil, errors.New("the task is another one by now"))
		return
	}
	want := of.CompiledTask.Schema(wire.KindTraining).Len()
	a.core.Do(a.core.DataJobs, func() func() {
		w := make([]float32, ref.Length/4)
		err := blob.Read(func(at int, piece []byte) error {
			return wire.DecodeVector(w[at/4:(at+len(piece))/4], piece)
		})
		if err == nil && len(w) != want {
			err = errors.New("the model has another size than the task's")
		}
		return func() {
			if err != nil {
				a.cfg.Logger.Warn("a model that was fetched cannot be used", "hash", ref.Hash.TopicLevel(), "err", err)
			}
			if ref.Hash == a.base.hash { // else the round is over, or is another agent's
				a.base.parameters = w
				a.stepRoundMachine(agentround.ModelFetched{Base: ref.Hash, Failed: err != nil})
			}
			a.modelArrived(ref.Hash, w, err)
		}
	})
}

// predictHooks returns what prediction needs of the agent.
func (a *Agent) predictHooks() predict.Hooks {
	return predict.Hooks{
		Tasks: a.taskData, Source: a.cfg.TaskData.Source, HoldsOutRows: a.cfg.TaskData.HeldOutShare > 0,
		BaseModel: a.baseModel, Parameters: a.training.PredictionParameters, Finetune: a.training.PrepareFinetuning,
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
		Program:     func() (predict.Program, error) { return programOf[predict.Program](&a.cfg) },
	}
}

// evaluationHooks returns what evaluation needs of the agent.
func (a *Agent) evaluationHooks() evaluation.Hooks {
	return evaluation.Hooks{
		Tasks: a.taskData, Parameters: a.training.PredictionParameters, FetchModel: a.fetchModel,
		Model: func(hash wire.Digest) []float32 {
			if w := a.baseModel(hash); w != nil {
				return w
			}
			return a.predict.ModelInUse(hash)
		},
		FetchedModel: func() (wire.Digest, bool) { return a.fetch.Underway(fetch.Model) },
		Program:      func() (evaluation.Program, error) { return programOf[evaluation.Program](&a.cfg) },
	}
}

// baseModel returns the base model of the round under way if it is that model and is in memory, or nil.
func (a *Agent) baseModel(hash wire.Digest) []float32 {
	if a.base.hash == hash {
		return a.base.parameters
	}
	return nil
}

// programOf returns the external program for prediction or evaluation, if the agent's trainer is one.
func programOf[P any](c *Config) (P, error) {
	program, is := c.Training.Trainer.(P)
	if !is {
		return program, training.ErrNoProgram
	}
	return program, nil
}

var (
	modelVersion = observe.OptionalGauge("model_version",
		"Version of the base model that was fetched last: the number of aggregations behind it.")
	modelBytes   = observe.OptionalGauge("model_bytes", "Size of the base model that was fetched last.")
	modelFetches = observe.Counter("model_fetches_total", "Base models that were fetched.")
)

// ModelFetched: the agent has the base model of a round.
type ModelFetched struct {
	Version wire.ModelVersion
	Bytes   int
}

// Describe implements observe.Event.
func (e ModelFetched) Describe(d *observe.Description) {
	d.Inc(modelFetches)
	d.Set(modelVersion, float64(e.Version))
	d.Set(modelBytes, float64(e.Bytes))
}
