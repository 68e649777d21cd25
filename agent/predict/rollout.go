package predict

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/fedmesh/fedmesh/agent/state"
	"github.com/fedmesh/fedmesh/modelfile"
	"github.com/fedmesh/fedmesh/wire"
)

// rollout is the staged release of a model that the coordinator has announced. Without a rollout the device considers
// every new model.
type rollout struct {
	wire.Rollout
	releasedFile, candidateFile wire.BlobRef
	// digests of those models of the rollout that were compared and not adopted
	refusedModels []wire.Digest
}

// rolloutModel is a model of the rollout that must be compared next.
type rolloutModel struct {
	wire.ModelRef
	fileRef wire.BlobRef
	// isRollback is true if the coordinator has withdrawn the model in use. The released model then replaces it without
	// a comparison.
	isRollback bool
}

// followRollout adopts the rollout in an announcement. It returns false if the announcement contains none.
func (p *PredictionManager) followRollout(a *wire.Announcement) bool {
	if !a.Rollout.ReleasedModel.IsSet() || !a.ReleasedModelFile.IsSet() {
		p.rollout = rollout{}
		return false
	}
	if a.Rollout != p.rollout.Rollout {
		p.rollout = rollout{Rollout: a.Rollout}
		p.newestModel, p.modelBeingFetched = announcedModel{}, announcedModel{}
		// Compare at once, because Config.MinModelChangeInterval does not apply to rollouts, which are rare.
		p.judgmentRetryAt = p.core.Loop.Now()
	}
	p.rollout.releasedFile, p.rollout.candidateFile = a.ReleasedModelFile, a.CandidateModelFile
	return true
}

// nextRolloutModel returns the model of the rollout that must be compared next: first the released model and then the
// candidate, which is compared with the released model. The result ok is false if no model remains.
func (p *PredictionManager) nextRolloutModel() (next rolloutModel, ok bool) {
	r := &p.rollout
	if !r.ReleasedModel.IsSet() {
		return rolloutModel{}, false
	}
	var inUse wire.ModelRef
	if p.inUse != nil {
		inUse = p.inUse.ModelRef()
	}
	getsCandidate := r.OffersCandidateTo(p.core.ID) && r.candidateFile.IsSet()
	switch {
	case getsCandidate && inUse == r.CandidateModel:
		return rolloutModel{}, false
	case inUse != r.ReleasedModel && !slices.Contains(r.refusedModels, r.ReleasedModel.ParametersDigest):
		return rolloutModel{r.ReleasedModel, r.releasedFile, inUse.IsNewerThan(r.ReleasedModel)}, true
	case getsCandidate && !slices.Contains(r.refusedModels, r.CandidateModel.ParametersDigest):
		return rolloutModel{r.CandidateModel, r.candidateFile, false}, true
	}
	return rolloutModel{}, false
}

// judgeNextRolloutModel compares the next model of the rollout if it is due. It uses a stored model or fetches the
// file.
func (p *PredictionManager) judgeNextRolloutModel() {
	of, is := p.nextRolloutModel()
	if !is || p.activeFileStamp == "" || p.judging || p.isModelPinned || p.core.Loop.Now().Before(p.judgmentRetryAt) {
		return
	}
	if hash, underway := p.dependencies.FindModelFileBeingFetched(); underway && hash == of.fileRef.Hash {
		return
	}
	p.judging = true
	p.core.ModelJobs.Enqueue(func() {
		m, err := findKeptModel(p.core.StateFolder, of.ModelRef)
		p.core.Loop.RunOnLoop(func() {
			if p.judging = false; m == nil && err != nil {
				p.core.Logger.Warn("cannot read a stored model; fetching the model again", "err", err)
			}
			switch {
			case m != nil:
				p.judgeRolloutModel(of, m)
			case !p.core.IsConnected || p.core.IsUplinkBudgetSpent():
				p.judgmentRetryAt = p.core.Loop.Now().Add(modelRetryDelay)
			case of.isRollback || !p.postponeIfUnjudgeable(of.Run, of.Version):
				p.dependencies.FetchModelFile(of.fileRef, func(f FetchedModelFile, err error) {
					p.handleFetchedFile(of.fileRef, f,
						err)
				})
			}
		})
	})
}

// findKeptModel returns the stored model with the given name, or nil if it is not stored.
func findKeptModel(folder state.Folder, name wire.ModelRef) (*modelfile.Model, error) {
	k, err := modelfile.OpenKeptModels(folder.Disk, folder.Dir)
	if err != nil {
		return nil, err
	}
	return k.Find(name)
}

// handleFetchedFile handles a fetched model file, or the error that made it unavailable.
func (p *PredictionManager) handleFetchedFile(ref wire.BlobRef, f FetchedModelFile, err error) {
	of, wanted := p.nextRolloutModel()
	switch wanted = wanted && of.fileRef.Hash == ref.Hash; {
	case err != nil:
		p.judgmentRetryAt = p.core.Loop.Now().Add(modelRetryDelay)
		return
	case p.judging:
		wanted = false
	}
	p.judging = p.judging || wanted
	p.core.ModelJobs.Enqueue(func() {
		content, err := f.ReadAll()
		var m *modelfile.Model
		if err == nil {
			m, err = modelfile.Decode(content)
		}
		err = errors.Join(err, f.RemoveFile())
		if err == nil && m.ModelRef() != of.ModelRef {
			err = fmt.Errorf("the fetched file contains a different model, %s with hash %s",
				m.DisplayName(), m.ParameterDigest)
		}
		p.core.Loop.RunOnLoop(func() {
			switch p.judging = p.judging && !wanted; {
			case !wanted:
			case err != nil:
				p.judgmentRetryAt = p.core.Loop.Now().Add(modelRetryDelay)
				p.core.Observer.Observe(ModelJudged{Run: of.Run, Version: of.Version, Result: Failed, Err: err,
					Risk: math.NaN(), RiskOfModelInUse: math.NaN()})
			default:
				p.judgeRolloutModel(of, m)
			}
			p.JudgeNewestModel()
		})
	})
}

// judgeRolloutModel judges a model of the rollout in a background job.
func (p *PredictionManager) judgeRolloutModel(of rolloutModel, m *modelfile.Model) {
	if now, is := p.nextRolloutModel(); !is || now.fileRef.Hash != of.fileRef.Hash {
		p.JudgeNewestModel()
		return
	}
	t := p.newModelTrial(m)
	t.isRollback = of.isRollback
	p.runModelTrial(t, func(event ModelJudged) {
		p.judgmentRetryAt = p.core.Loop.Now()
		switch event.Result {
		case Adopted:
		case Worse, NotFinite:
			p.rollout.refusedModels = append(p.rollout.refusedModels, of.ParametersDigest)
		default:
			p.judgmentRetryAt = p.judgmentRetryAt.Add(modelRetryDelay)
		}
	})
}

// candidateResiduals returns the forecast errors of the candidate and the released model for the next hello.
func (p *PredictionManager) candidateResiduals() (r wire.CandidateResiduals) {
	if !p.rollout.OffersCandidateTo(p.core.ID) || p.isModelPinned {
		return r
	}
	c := p.rollout.CandidateModel
	refused := slices.Contains(p.rollout.refusedModels, c.ParametersDigest)
	// Without forecasts the agent reads no labels, so the residuals are unknown.
	if !refused && p.cfg.PublishForecast == nil {
		return r
	}
	r = wire.CandidateResiduals{Run: c.Run, ModelVersion: c.Version, CandidateRefused: refused}
	if l := &p.lastComparison; l.candidate == c && l.reference == p.rollout.ReleasedModel && l.comparedRows > 0 {
		r.LabeledRows, r.CandidateMeanSquare, r.ReleasedMeanSquare = l.comparedRows,
			l.candidateSquaredError/float64(l.comparedRows),
			l.referenceSquaredError/float64(l.comparedRows)
	}
	return r
}
