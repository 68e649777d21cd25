package wire

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

// ModelRef is a model of a run.
type ModelRef struct {
	Run              RunID
	Version          ModelVersion
	ParametersDigest Digest `json:"Hash"` // of its parameters, as a blob
}

// String names the model for a person: RUN/VERSION.
func (m ModelRef) String() string { return fmt.Sprintf("%d/%d", m.Run, m.Version) }

// IsSet reports whether there is a model at all.
func (m ModelRef) IsSet() bool { return m.Run != 0 }

// IsNewerThan reports whether the model was made after another one.
func (m ModelRef) IsNewerThan(other ModelRef) bool {
	return m.Run > other.Run || m.Run == other.Run && m.Version > other.Version
}

// Rollout says which models agents predict with. Its models are announced as files. Without one, each agent decides by
// itself.
type Rollout struct {
	ReleasedModel       ModelRef // for all
	CandidateModel      ModelRef // for the agents of the share; zero if there is none
	CandidateAgentShare float64  // of the agents, above 0 and at most 1; 0 without a candidate
}

// OffersCandidateTo reports whether the candidate is for that agent. Each candidate has a share of its own: the agents
// whose place, the first 53 bits of SHA-256("fedmesh/rollout" + hash of the parameters + id) as a fraction of 1, is
// below Share.
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

// CandidateResiduals is what an agent of the share says of the candidate.
type CandidateResiduals struct {
	Run              RunID // of the candidate; 0 = nothing is said
	ModelVersion     ModelVersion
	CandidateRefused bool // the agent does not use it: it is worse on the agent's held-out rows
	// LabeledRows is how many labels have come since the agent uses it, and New and Old the mean squares of the
	// residuals of the candidate and of the released model, on the same rows.
	LabeledRows                             uint32
	CandidateMeanSquare, ReleasedMeanSquare float64
}

// IsForModel reports whether the residuals are of that model.
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
