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

// rollout is the rollout announced by the coordinator. Without a rollout the device adopts each new model.
type rollout struct {
	wire.Rollout
	releasedFile, candidateFile wire.BlobRef
	refusedModels               []wire.Digest // digests of the two models that were judged and not adopted
}

// rolloutModel is a model of a rollout that is to be judged.
type rolloutModel struct {
	wire.ModelRef
	fileRef wire.BlobRef
	// isRollback means that the model in use was withdrawn. The released model is then adopted without a comparison.
	isRollback bool
}

// followRollout follows the rollout in an announcement. It reports whether the announcement contains one.
func (p *PredictionManager) followRollout(a *wire.Announcement) bool {
	if !a.Rollout.ReleasedModel.IsSet() || !a.ReleasedModelFile.IsSet() {
		p.rollout = rollout{}
		return false
	}
	if a.Rollout != p.rollout.Rollout {
		p.rollout = rollout{Rollout: a.Rollout}
		p.newestModel, p.modelBeingFetched = announcedModel{}, announcedModel{}
		// rollouts are rare, so Config.MinModelChangeInterval does not apply
		p.judgmentRetryAt = p.core.Loop.Now()
	}
	p.rollout.releasedFile, p.rollout.candidateFile = a.ReleasedModelFile, a.CandidateModelFile
	return true
}

// nextRolloutModel returns the model of the rollout that is judged next. The released model precedes the candidate,
// which is compared with it. ok is false if no model remains.
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

// judgeNextRolloutModel judges the next model of the rollout if it is due. It uses a kept model, or fetches the file.
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
				p.core.Logger.Warn("cannot read a kept model; fetching it again", "err", err)
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

// findKeptModel returns a kept model, or nil if it was not kept.
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
			err = fmt.Errorf("the file contains a different model, %s with hash %s", m.DisplayName(), m.ParameterDigest)
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

// candidateResiduals returns the candidate's residuals for the next hello.
func (p *PredictionManager) candidateResiduals() (r wire.CandidateResiduals) {
	if !p.rollout.OffersCandidateTo(p.core.ID) || p.isModelPinned {
		return r
	}
	c := p.rollout.CandidateModel
	refused := slices.Contains(p.rollout.refusedModels, c.ParametersDigest)
	if !refused && p.cfg.PublishForecast == nil { // without forecasts no labels are read
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
