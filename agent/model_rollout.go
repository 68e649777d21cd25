package agent

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/fedmesh/fedmesh/agent/fetch"
	"github.com/fedmesh/fedmesh/modelfile"
	"github.com/fedmesh/fedmesh/wire"
)

// rollout is what the coordinator says of the models to predict with. Without one the agent takes each new model.
type rollout struct {
	wire.Rollout
	releasedFile, candidateFile wire.BlobRef  // their files
	refusedModels               []wire.Digest // of these two, the models that were judged and are not taken
}

// rolloutModel is a model of a rollout on its way into use.
type rolloutModel struct {
	wire.ModelName
	ref wire.BlobRef
	// isRollback means that the model in use was withdrawn: the released one takes its place without being judged.
	isRollback bool
}

// followRollout follows the rollout of an announcement, and reports whether it has one.
func (a *Agent) followRollout(ann *wire.Announcement) bool {
	k := &a.models
	if !ann.Rollout.Released.Present() || !ann.ReleasedModelFile.Present() {
		k.rollout = rollout{}
		return false
	}
	if ann.Rollout != k.rollout.Rollout {
		k.rollout = rollout{Rollout: ann.Rollout}
		k.newest, k.pulling = announcedModel{}, announcedModel{}
		k.retryAt = a.owner.Now() // it is seldom, so it need not wait
	}
	k.rollout.releasedFile, k.rollout.candidateFile = ann.ReleasedModelFile, ann.CandidateModelFile
	return true
}

// nextRolloutModel returns the model of the rollout that is to be judged next, if one is: the released one before the
// candidate, which is compared with it.
func (k *predictionModels) nextRolloutModel(agent wire.AgentID) (rolloutModel, bool) {
	r := &k.rollout
	if !r.Released.Present() {
		return rolloutModel{}, false
	}
	var inUse wire.ModelName
	if k.inUse != nil {
		inUse = k.inUse.ModelName()
	}
	mine := r.Includes(agent) && r.candidateFile.Present()
	switch {
	case mine && inUse == r.Candidate:
		return rolloutModel{}, false
	case inUse != r.Released && !slices.Contains(r.refusedModels, r.Released.Hash):
		return rolloutModel{r.Released, r.releasedFile, inUse.NewerThan(r.Released)}, true
	case mine && !slices.Contains(r.refusedModels, r.Candidate.Hash):
		return rolloutModel{r.Candidate, r.candidateFile, false}, true
	}
	return rolloutModel{}, false
}

// startRolloutTrial has the model of the rollout that is due judged: from the models that are kept, or else it is
// pulled.
func (a *Agent) startRolloutTrial() {
	k := &a.models
	of, is := k.nextRolloutModel(a.cfg.ID)
	if !is || k.stamp == "" || k.judging || k.pinned || a.owner.Now().Before(k.retryAt) ||
		a.fetchesFile(of.ref.Hash) {
		return
	}
	k.judging = true
	k.jobs.Do(func() {
		m, err := findKeptModel(&a.cfg, of.ModelName)
		a.owner.RunOnLoop(func() {
			if k.judging = false; m == nil && err != nil {
				a.cfg.Logger.Warn("a model that is kept cannot be read; it is fetched again", "err", err)
			}
			switch {
			case m != nil:
				a.judgeRolloutModel(of, m)
			case !a.core.Connected || a.budget.Spent():
				k.retryAt = a.owner.Now().Add(modelRetryDelay)
			case of.isRollback || !a.cannotJudge(of.Run, of.Version):
				a.fetch.Fetch(of.ref, fetch.ModelFile, func(b *fetch.Blob, err error) { a.fileCame(of.ref, b, err) })
			}
		})
	})
}

// findKeptModel returns a model of those that are kept; nil if it is not there.
func findKeptModel(c *Config, name wire.ModelName) (*modelfile.Model, error) {
	k, err := modelfile.OpenKeptModels(c.Disk, c.Dir)
	if err != nil {
		return nil, err
	}
	return k.Find(name)
}

// fetchesFile reports whether the file of a model is being fetched.
func (a *Agent) fetchesFile(hash wire.Digest) bool {
	underway, is := a.fetch.Underway(fetch.ModelFile)
	return is && underway == hash
}

// fileCame takes the file of a model, or that it could not be had.
func (a *Agent) fileCame(ref wire.BlobRef, blob *fetch.Blob, err error) {
	if errors.Is(err, fetch.ErrCanceled) {
		return
	}
	k := &a.models
	of, wanted := k.nextRolloutModel(a.cfg.ID)
	switch wanted = wanted && of.ref.Hash == ref.Hash; {
	case err != nil:
		k.retryAt = a.owner.Now().Add(modelRetryDelay)
		return
	case k.judging:
		wanted = false
	}
	k.judging = k.judging || wanted
	k.jobs.Do(func() {
		text, err := blob.ReadAll()
		var m *modelfile.Model
		if err == nil {
			m, err = modelfile.Decode(text)
		}
		err = errors.Join(err, blob.RemoveFile())
		if err == nil && m.ModelName() != of.ModelName {
			err = fmt.Errorf("the file is of model %s with hash %s", m.DisplayName(), m.Hash)
		}
		a.owner.RunOnLoop(func() {
			switch k.judging = k.judging && !wanted; {
			case !wanted:
			case err != nil:
				k.retryAt = a.owner.Now().Add(modelRetryDelay)
				a.cfg.Observer.Observe(ModelJudged{Run: of.Run, Version: of.Version, Result: ModelFailed, Err: err,
					Risk: math.NaN(), RiskOfModelInUse: math.NaN()})
			default:
				a.judgeRolloutModel(of, m)
			}
			a.startNewestModelTrial()
		})
	})
}

// judgeRolloutModel has a model of the rollout judged beside the owner.
func (a *Agent) judgeRolloutModel(of rolloutModel, m *modelfile.Model) {
	k := &a.models
	if now, is := k.nextRolloutModel(a.cfg.ID); !is || now.ref.Hash != of.ref.Hash {
		a.startNewestModelTrial()
		return
	}
	t := a.trialOf(m)
	t.isRollback = of.isRollback
	a.runTrial(t, func(event ModelJudged) {
		k.retryAt = a.owner.Now()
		switch event.Result {
		case ModelAdopted:
		case ModelWorse, ModelNotFinite:
			k.rollout.refusedModels = append(k.rollout.refusedModels, of.Hash)
		default:
			k.retryAt = k.retryAt.Add(modelRetryDelay)
		}
	})
}

// candidateResiduals is what the next hello says of the candidate.
func (a *Agent) candidateResiduals() (r wire.CandidateResiduals) {
	k := &a.models
	if !k.rollout.Includes(a.cfg.ID) || k.pinned {
		return r
	}
	c := k.rollout.Candidate
	refused := slices.Contains(k.rollout.refusedModels, c.Hash)
	if !refused && a.cfg.Predict.Publish == nil { // it sees no labels
		return r
	}
	r = wire.CandidateResiduals{Run: c.Run, Version: c.Version, CandidateRefused: refused}
	if p := &k.lastComparison; p.candidate == c && p.reference == k.rollout.Released && p.rows > 0 {
		r.LabeledRows, r.CandidateMeanSquare, r.ReleasedMeanSquare = p.rows, p.candidateSquaredError/float64(p.rows),
			p.referenceSquaredError/float64(p.rows)
	}
	return r
}
