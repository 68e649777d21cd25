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

// roundBaseModel is the base model of the current round.
type roundBaseModel struct {
	hash       wire.Digest
	parameters []float32 // parameters of the base model; nil until the model has arrived
}

// obtainRoundBaseModel obtains the base model of a round. It reuses the model in memory or fetches the model.
func (a *Agent) obtainRoundBaseModel(ref wire.BlobRef) {
	a.roundBaseModel.hash = ref.Hash
	if w := a.predict.ParametersOfModelInUse(ref.Hash); w != nil {
		a.roundBaseModel.parameters = w
		a.handleRoundEvent(agentround.ModelFetched{BaseModelDigest: ref.Hash})
		return
	}
	if !a.fetch.RenewRetries(ref, fetch.Model) {
		a.fetchModel(ref)
	}
}

// fetchModel fetches a base model for training, prediction and evaluation.
func (a *Agent) fetchModel(ref wire.BlobRef) {
	a.fetch.Fetch(ref, fetch.Model, func(b *fetch.Blob, err error) { a.decodeFetchedModel(ref, b, err) })
}

// deliverModelToParts passes a fetched base model to evaluation and prediction. If the fetch failed, it passes the
// error.
func (a *Agent) deliverModelToParts(hash wire.Digest, w []float32, err error) {
	if err == nil {
		a.evaluation.EvaluateArrivedModel(hash, w)
	}
	a.predict.HandleArrivedModel(hash, w, err)
}

// decodeFetchedModel decodes a fetched base model, or reports that it is not available.
func (a *Agent) decodeFetchedModel(ref wire.BlobRef, blob *fetch.Blob, err error) {
	if errors.Is(err, fetch.ErrCanceled) {
		a.predict.HandleCanceledModelFetch(ref.Hash)
		return
	}
	if err != nil {
		a.handleRoundEvent(agentround.ModelFetched{BaseModelDigest: ref.Hash, FetchFailed: true})
		a.deliverModelToParts(ref.Hash, nil, err)
		return
	}
	of := a.taskData.AnnouncedTask() // announced task, whose rows may not match the model
	if ref.Hash == a.roundBaseModel.hash {
		of = a.taskData.LastPreparedTask().LocalTask
	}
	if of == nil || of.CompiledTask == nil {
		a.deliverModelToParts(ref.Hash, nil, errors.New("the announced task has changed since the model was requested"))
		return
	}
	want := of.CompiledTask.UpdateSchema(wire.KindTraining).ElementCount()
	a.core.RunJobThenOnLoop(a.core.DataJobs, func() func() {
		w := make([]float32, ref.Length/4)
		err := blob.ReadPieces(func(at int, piece []byte) error {
			return wire.DecodeVector(w[at/4:(at+len(piece))/4], piece)
		})
		if err == nil && len(w) != want {
			err = errors.New("the size of the fetched model does not match the task")
		}
		return func() {
			if err != nil {
				a.cfg.Logger.Warn("cannot use the fetched base model; ignoring it",
					"hash", ref.Hash.TopicLevel(), "err", err)
			}
			// The condition is false if the model is not, or is no longer, the base model of this round.
			if ref.Hash == a.roundBaseModel.hash {
				a.roundBaseModel.parameters = w
				a.handleRoundEvent(agentround.ModelFetched{BaseModelDigest: ref.Hash, FetchFailed: err != nil})
			}
			a.deliverModelToParts(ref.Hash, w, err)
		}
	})
}

// predictDependencies returns the agent's callbacks for the predict package.
func (a *Agent) predictDependencies() predict.PredictionDependencies {
	return predict.PredictionDependencies{
		Tasks: a.taskData, Source: a.cfg.TaskData.Source, HoldsOutRows: a.cfg.TaskData.HeldOutShare > 0,
		FindBaseModelInMemory: a.findBaseModelInMemory, BuildPredictionParameters: a.training.PredictionParameters,
		PrepareFinetuning:     a.training.PrepareFinetuning,
		FetchModel:            a.fetchModel,
		FindModelBeingFetched: func() (wire.Digest, bool) { return a.fetch.BlobBeingFetched(fetch.Model) },
		FetchModelFile: func(ref wire.BlobRef, done func(predict.FetchedModelFile, error)) {
			a.fetch.Fetch(ref, fetch.ModelFile, func(b *fetch.Blob, err error) {
				if !errors.Is(err, fetch.ErrCanceled) {
					done(b, err)
				}
			})
		},
		FindModelFileBeingFetched: func() (wire.Digest, bool) { return a.fetch.BlobBeingFetched(fetch.ModelFile) },
		FindProgram: func() (predict.PredictingProgram,
			error) {
			return trainerAsProgram[predict.PredictingProgram](&a.cfg)
		},
	}
}

// evaluationDependencies returns the agent's callbacks for the evaluation package.
func (a *Agent) evaluationDependencies() evaluation.EvaluatorDependencies {
	return evaluation.EvaluatorDependencies{
		Tasks: a.taskData, BuildPredictionParameters: a.training.PredictionParameters, FetchModel: a.fetchModel,
		FindModelInMemory: func(hash wire.Digest) []float32 {
			if w := a.findBaseModelInMemory(hash); w != nil {
				return w
			}
			return a.predict.ParametersOfModelInUse(hash)
		},
		FindModelBeingFetched: func() (wire.Digest, bool) { return a.fetch.BlobBeingFetched(fetch.Model) },
		FindProgram: func() (evaluation.EvaluatingProgram, error) {
			return trainerAsProgram[evaluation.EvaluatingProgram](&a.cfg)
		},
	}
}

// findBaseModelInMemory returns the base model of the current round if the model has this hash and is in memory.
// Otherwise it returns nil.
func (a *Agent) findBaseModelInMemory(hash wire.Digest) []float32 {
	if a.roundBaseModel.hash == hash {
		return a.roundBaseModel.parameters
	}
	return nil
}

// trainerAsProgram returns the agent's trainer as type P, or an error if the trainer is not an external program.
func trainerAsProgram[P any](c *Config) (P, error) {
	program, is := c.Training.Trainer.(P)
	if !is {
		return program, training.ErrNoProgram
	}
	return program, nil
}

var (
	modelVersion = observe.OptionalGauge("model_version",
		"Version of the last fetched base model (number of aggregations so far).")
	modelBytes   = observe.OptionalGauge("model_bytes", "Size of the last fetched base model.")
	modelFetches = observe.Counter("model_fetches_total", "Base models fetched.")
)

// BaseModelFetched is emitted when the agent has the base model of a round.
type BaseModelFetched struct {
	Version wire.ModelVersion
	Bytes   int
}

// Describe implements observe.Event.
func (e BaseModelFetched) Describe(d *observe.EventDescription) {
	d.IncCounter(modelFetches)
	d.SetGauge(modelVersion, float64(e.Version))
	d.SetGauge(modelBytes, float64(e.Bytes))
}
