package coordinator

import (
	"errors"
	"io/fs"
	"slices"

	"github.com/fedmesh/fedmesh/coordinator/publish"
	"github.com/fedmesh/fedmesh/modelfile"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/rollout"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// Rolled-out models are sent as files that contain everything a prediction needs. Agents can use them with any current
// task. The files remain in the archive of their run while they are announced.

// resumeRollout loads the files of the record's rollout. It removes a model whose file is lost or whose columns differ
// from the task's.
func (c *Coordinator) resumeRollout(r *round.JournalRecord) error {
	if !c.cfg.Round.Rollout.IsEnabled() {
		return nil
	}
	if err := c.aggregator.RestoreModelFile(r); err != nil {
		return err
	}
	for _, m := range []*rollout.Model{&r.Rollout.Released, &r.Rollout.Candidate} {
		if !m.IsSet() {
			continue
		}
		b, lost, err := c.readRolloutFile(m)
		if err != nil {
			return err
		}
		if lost != nil {
			c.cfg.Logger.Error("cannot read a model that was rolled out for predictions; a newer model will replace it",
				"model", m.String(), "err", lost)
			*m = rollout.Model{}
			continue
		}
		c.rolloutFiles = append(c.rolloutFiles, b)
	}
	if !r.Rollout.Released.IsSet() { // without a released model there is no comparison
		r.Rollout.Candidate = rollout.Model{}
	}
	return nil
}

// readRolloutFile reads the file of a model that is being rolled out. lost is the reason why the file is unusable. err
// is a disk error, which may be temporary.
func (c *Coordinator) readRolloutFile(m *rollout.Model) (b publish.Blob, lost, err error) {
	if f := c.aggregator.BaseModelFile(); f.Data != nil && f.Ref.Hash == m.File.Hash {
		return f, nil, nil
	}
	var file []byte
	models, err := c.stateFolder.OpenModelsOfRun(m.Run)
	if err == nil {
		file, err = models.Get(uint64(m.Version))
	}
	if store.IsMissingOrDamaged(err) || errors.Is(err, fs.ErrNotExist) {
		return publish.Blob{}, err, nil
	}
	if err != nil {
		return publish.Blob{}, nil, err
	}
	of, lost := modelfile.Decode(file)
	if lost != nil {
		return publish.Blob{}, lost, nil
	}
	p := c.aggregator.Task()
	if !of.IsComparableWith(modelfile.NewModel(&p.Task, p.Model.Architecture(), nil, wire.Digest{})) {
		return publish.Blob{}, errors.New("the model's columns or target do not match the task"), nil
	}
	if b = publish.NewBlob(file, wire.Digest{}); b.Ref.Hash != m.File.Hash {
		return publish.Blob{}, errors.New("the model file has changed since its release"), nil
	}
	return b, nil, nil
}

// loadRolloutFiles discards loaded files that do not belong to a model in the rollout state. It adds the file of the
// current model if the rollout state contains that model.
func (c *Coordinator) loadRolloutFiles(s *rollout.State) {
	all := append(slices.Clone(c.rolloutFiles), c.aggregator.BaseModelFile())
	c.rolloutFiles = slices.DeleteFunc(all, func(b publish.Blob) bool {
		return b.Data == nil || !isRolledOut(s, b.Ref.Hash)
	})
	c.rolloutFiles = slices.CompactFunc(c.rolloutFiles, func(a, b publish.Blob) bool {
		return a.Ref.Hash == b.Ref.Hash
	})
}

// isRolledOut reports whether the file with the given hash belongs to the released model or to the candidate (the model
// that a share of the agents tries).
func isRolledOut(s *rollout.State, file wire.Digest) bool {
	return s.Released.IsSet() && file == s.Released.File.Hash ||
		s.Candidate.IsSet() && file == s.Candidate.File.Hash
}

// rolledOutVersions returns the versions of a run's models that are released or that a share of the agents tries.
func rolledOutVersions(s *rollout.State, run wire.RunID) (versions []uint64) {
	for _, m := range []rollout.Model{s.Released, s.Candidate} {
		if m.IsSet() && m.Run == run {
			versions = append(versions, uint64(m.Version))
		}
	}
	return versions
}
