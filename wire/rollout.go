package wire

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

// ModelRef identifies a model of a run.
type ModelRef struct {
	Run              RunID
	Version          ModelVersion
	ParametersDigest Digest `json:"Hash"` // digest of the blob with the parameters
}

// String returns the name of the model for display: RUN/VERSION.
func (m ModelRef) String() string { return fmt.Sprintf("%d/%d", m.Run, m.Version) }

// IsSet reports whether m identifies a model.
func (m ModelRef) IsSet() bool { return m.Run != 0 }

// IsNewerThan reports whether m was created after other.
func (m ModelRef) IsNewerThan(other ModelRef) bool {
	return m.Run > other.Run || m.Run == other.Run && m.Version > other.Version
}

// Rollout defines the models that agents use for predictions. The models are announced as files. Without a rollout,
// each agent decides itself whether to use a new model.
type Rollout struct {
	ReleasedModel       ModelRef
	CandidateModel      ModelRef // model for a share of the agents; zero means that there is no candidate
	CandidateAgentShare float64  // share of the agents that use the candidate, at most 1; 0 means no candidate
}

// OffersCandidateTo reports whether an agent should use the candidate model. It takes the first 53 bits of
// SHA-256("fedmesh/rollout" + hash of the parameters + id) as a fraction of 1; the candidate is offered if this
// fraction is below CandidateAgentShare. Each candidate therefore selects a different share of the agents.
func (r *Rollout) OffersCandidateTo(agent AgentID) bool {
	if !r.CandidateModel.IsSet() {
		return false
	}
	text := append([]byte("fedmesh/rollout"), r.CandidateModel.ParametersDigest[:]...)
	sum := sha256.Sum256(append(text, agent...))
	return float64(binary.BigEndian.Uint64(sum[:])>>11)/(1<<53) < r.CandidateAgentShare
}

func (w *writer) modelRef(m *ModelRef) {
	w.u64(uint64(m.Run))
	w.u64(uint64(m.Version))
	w.digest(m.ParametersDigest)
}

func (r *reader) modelRef() ModelRef {
	return ModelRef{RunID(r.u64()), ModelVersion(r.u64()), r.digest()}
}

func (w *writer) rollout(p *Rollout) {
	if *p == (Rollout{}) {
		return
	}
	w.modelRef(&p.ReleasedModel)
	w.modelRef(&p.CandidateModel)
	w.f64(p.CandidateAgentShare)
}

func (r *reader) rollout(p *Rollout) {
	*p = Rollout{r.modelRef(), r.modelRef(), r.f64("share")}
}

// CandidateResiduals contains an agent's measurements of the candidate model's prediction errors.
type CandidateResiduals struct {
	Run              RunID // run of the candidate; 0 means no measurements
	ModelVersion     ModelVersion
	CandidateRefused bool // whether the agent rejected the candidate because it is worse on the held-out rows
	// LabeledRows is the number of rows with a known label since the agent began to use the candidate.
	// CandidateMeanSquare and ReleasedMeanSquare are the mean squared residuals of the two models on these rows.
	LabeledRows                             uint32
	CandidateMeanSquare, ReleasedMeanSquare float64
}

// IsForModel reports whether the residuals belong to the given model.
func (m *CandidateResiduals) IsForModel(name ModelRef) bool {
	return name.IsSet() && m.Run == name.Run && m.ModelVersion == name.Version
}

func (w *writer) candidateResiduals(m *CandidateResiduals) {
	if *m == (CandidateResiduals{}) {
		return
	}
	w.u64(uint64(m.Run))
	w.u64(uint64(m.ModelVersion))
	w.bool(m.CandidateRefused)
	w.u32(m.LabeledRows)
	w.f64(m.CandidateMeanSquare)
	w.f64(m.ReleasedMeanSquare)
}

func (r *reader) candidateResiduals(m *CandidateResiduals) {
	*m = CandidateResiduals{RunID(r.u64()), ModelVersion(r.u64()), r.bool("refused"), r.u32(),
		r.f64("residuals of the candidate"), r.f64("residuals of the released model")}
}
