package round

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/round/rollout"
	"github.com/fedmesh/fedmesh/round/stop"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// CoordinatorPhase is where the coordinator's machine stands.
type CoordinatorPhase string

// The phases of the coordinator.
const (
	CoordinatorIdle       CoordinatorPhase = "idle"       // before the run, and in the pause between rounds
	CoordinatorGathering  CoordinatorPhase = "gathering"  // hellos are asked for
	CoordinatorCollecting CoordinatorPhase = "collecting" // a round is announced, updates come in
	CoordinatorClosing    CoordinatorPhase = "closing"    // the set is being folded; on disk the round is still open
	CoordinatorPaused     CoordinatorPhase = "paused"     // until a person has the run go on
	CoordinatorFinished   CoordinatorPhase = "finished"
)

// CoordinatorPhases returns all phases, for closed label sets.
func CoordinatorPhases() []CoordinatorPhase {
	return []CoordinatorPhase{CoordinatorIdle, CoordinatorGathering, CoordinatorCollecting, CoordinatorClosing,
		CoordinatorPaused, CoordinatorFinished}
}

// Plan is what a round computes. The host makes it, since it holds the model.
type Plan struct {
	Kind             wire.RoundKind
	BaseModelVersion wire.ModelVersion `json:"Version"` // of BaseModel
	Task             wire.BlobRef
	// BaseModel is absent in the statistics round before the first model. In a later one agents do not get it.
	BaseModel          wire.BlobRef `json:"Base"`
	ModelFile          wire.BlobRef `json:"File,omitzero"`   // of the model, where models are rolled out
	UpdateSchema       wire.Digest  `json:"Schema"`          // of the vectors sent in
	UpdateBytes        uint32       `json:"Bytes"`           // of a vector on the wire, packed
	Codec              spec.Codec   `json:",omitempty"`      // that packs it
	RawUpdateBytes     uint32       `json:"Plain,omitempty"` // bytes of a raw one, from who does not know the codec; 0 = all know it
	Exchange           spec.ExchangeKind
	HasEndlessBlocks   bool                     `json:"Endless"`          // agents go on mixing over the rounds
	ServerStepSize     float64                  `json:"StepSize"`         // μ of the server's step, for gradient exchange
	LocalStepOffset    uint64                   `json:"Offset"`           // t: local steps of the schedule so far
	RecentAggregations []PastAggregationSummary `json:"Recent,omitempty"` // of the folds before, the newest last
	// FirstReportedRisks are the first risks that agents reported in the run.
	FirstReportedRisks ReportedRiskSummary `json:"FirstTold,omitzero"`
	SuspectAgents      []wire.AgentID      `json:"Suspects,omitempty"` // see UpdateNormAssessment.SuspectAgents
	LargeNormAgents    []LargeNormAgent    `json:"Large,omitempty"`    // agents whose last update was long, the most recent last
}

// trainingBaseModel is the model that agents are to work on.
func (p *Plan) trainingBaseModel() wire.BlobRef {
	if p.Kind == wire.KindStatistics {
		return wire.BlobRef{}
	}
	return p.BaseModel
}

// acceptsManifest reports whether an update is packed as the plan's vectors are.
func (p *Plan) acceptsManifest(m *wire.Manifest) bool {
	return m.VectorSchema == p.UpdateSchema && (m.BlobLength == p.UpdateBytes && m.Codec == p.Codec ||
		p.RawUpdateBytes > 0 && m.BlobLength == p.RawUpdateBytes && m.Codec == spec.CodecRaw)
}

// bytesSavedByCodec is how many bytes fewer an update has than a raw one: a training round's model has an element for
// each.
func (p *Plan) bytesSavedByCodec(m *wire.Manifest) int64 {
	if p.Kind != wire.KindTraining {
		return 0
	}
	return max(int64(p.BaseModel.Length)-int64(m.BlobLength), 0)
}

// planWithoutMethods is a Plan without methods.
type planWithoutMethods Plan

// savedPlan is a Plan in the journal, where the exchange stands as the byte of the protocol.
type savedPlan struct {
	planWithoutMethods
	Exchange uint8 // 0 = none, as in a statistics round
}

// MarshalJSON writes the plan into the journal.
func (p Plan) MarshalJSON() ([]byte, error) {
	return json.Marshal(savedPlan{planWithoutMethods(p), wire.ExchangeKindCode(p.Exchange)})
}

// UnmarshalJSON reads a plan from the journal.
func (p *Plan) UnmarshalJSON(text []byte) error {
	var s savedPlan
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	*p = Plan(s.planWithoutMethods)
	p.Exchange = wire.ExchangeKindOfCode(s.Exchange)
	return nil
}

// Participant is an agent of the current round.
type Participant struct {
	Agent                wire.AgentID
	DrawCount            int         `json:"Times"` // drawn so often; 0 = it trains and mixes, and sends nothing
	Weight               float64     // K·p_k
	Odds                 float64     `json:",omitempty"` // K·q_k of its draw by importance; 0 = 1
	RowCount             uint64      `json:"Samples"`    // n_k, as its hello before the draw said; 0 = not known
	AcceptedUpdateDigest wire.Digest `json:"Accepted"`   // the update that is held; zero while there is none
	// The next three fields describe that update. After a restart the host reads them from the spool.
	UpdateNorm   float64    `json:"-"` // ‖v_k‖₂
	UpdateCodec  spec.Codec `json:"-"`
	ReportedRisk float64    `json:"-"` // the local risk at the base model, reported by the agent
	// Boot and PeerKey are what the participant's neighbours know it by, where agents mix.
	Boot             wire.Epoch
	PeerKey          wire.X25519PublicKey
	SupportsClipping bool `json:"Clips,omitempty"` // it knows clipped mixing, and proofs
}

// MixingEdge joins two participants, A before B in id order, that mix with weight w_AB.
type MixingEdge struct {
	A, B           wire.AgentID
	MixingWeight   float64 `json:"Weight"`
	ClipBound      float64 `json:"Clip,omitempty"`   // τ; 0 = no bound
	RequiresProofs bool    `json:"Proves,omitempty"` // as all of the block do, or none
}

// JournalRecord is what the coordinator's machine keeps on disk. A machine made from
// the last record goes on where that one stood.
type JournalRecord struct {
	Run            wire.RunID
	Round          wire.RoundID
	Attempt        wire.RoundAttempt
	Phase          CoordinatorPhase
	Plan           Plan
	EligibleAgents int `json:"Agents"` // K at the draw
	Participants   []Participant
	Edges          []MixingEdge // between participants, in the order of (A, B); none where agents do not mix
	// for which the edges were made: this one, unless blocks have no end; 0 where agents do not mix
	MixingBlockRound     wire.RoundID          `json:"Block"`
	RandomDrawsMade      int                   `json:"Drawn"`              // draws of the round so far, from its seeded sequence, where agents mix
	SidelinedAgents      []SidelinedAgent      `json:"Sidelined"`          // in id order
	EndedEdges           []EndedEdge           `json:"Left,omitempty"`     // edges that are left out, in the order of (A, B)
	LastOutcome          *RoundOutcome         `json:"Last"`               // of the last round that is over; nil before the first is
	LastAcceptedUpdates  AcceptedUpdates       `json:"Counted"`            // what the last closed round took
	RecentOutcomes       []EncodedRoundOutcome `json:"Outcomes,omitempty"` // of the last rounds, the newest last
	Rollout              rollout.State         `json:",omitzero"`          // of models to predict with; from run to run
	LastEvaluatedVersion wire.ModelVersion     `json:"Evaluated,omitzero"` // the last model whose evaluation is over
	ResponseLottery      ResponseLottery       `json:"Responding,omitzero"`
	StopState            stop.State            `json:"Stop,omitzero"`   // how far the run has come, where a rule ends it
	RunStopReason        stop.Reason           `json:"Ended,omitempty"` // why the run is finished; empty if it is not
}

// maxRecentOutcomes is of how many rounds the outcome is remembered: for that long an agent may ask.
const maxRecentOutcomes = 8

// EncodedRoundOutcome is the outcome of a round that is over, as it travels: see wire.RoundOutcome.
type EncodedRoundOutcome struct {
	Round   wire.RoundID
	Outcome []byte
}

// appendRoundOutcome remembers what became of the updates of a round.
func (r *JournalRecord) appendRoundOutcome(o wire.RoundOutcome) {
	r.RecentOutcomes = append(slices.Clone(r.RecentOutcomes), EncodedRoundOutcome{o.Round, o.Body()})
	r.RecentOutcomes = r.RecentOutcomes[max(0, len(r.RecentOutcomes)-maxRecentOutcomes):]
}

// NewestModel is the record's model and its file, for a rollout.
func (r *JournalRecord) NewestModel() rollout.Model {
	p := &r.Plan
	return rollout.Model{ModelRef: wire.ModelRef{Run: r.Run, Version: p.BaseModelVersion,
		ParametersDigest: p.BaseModel.Hash},
		File: p.ModelFile}
}

// AbandonUnrecoverableRound ends the record's round, whose base model is lost, since its updates are changes of that;
// or which another task does not let go on.
func (r *JournalRecord) AbandonUnrecoverableRound(now time.Time, version wire.ModelVersion, reason AbandonReason) {
	r.StopState.ForgetRisks() // the risks of the models that are lost
	r.StopState.R2, r.StopState.Accuracy, r.RunStopReason = 0, 0, ""
	if r.Phase != CoordinatorCollecting {
		return
	}
	r.appendRoundOutcome(wire.RoundOutcome{Round: r.Round, IsAbandoned: true})
	r.LastOutcome = &RoundOutcome{Round: r.Round, Attempt: r.Attempt, Kind: r.Plan.Kind, AbandonReason: reason,
		ModelVersionAfter: version,
		SelectedAgents:    len(r.Participants), EndedAt: now.UTC().Truncate(time.Millisecond)}
}

// updateFate returns what became of an update of an earlier round.
func (r *JournalRecord) updateFate(round wire.RoundID, agent wire.AgentID, update wire.Digest) wire.UpdateFate {
	for _, s := range r.RecentOutcomes {
		if s.Round != round {
			continue // after a round of many, each of them asks
		}
		if o, err := wire.DecodeRoundOutcome(s.Outcome); err == nil {
			return o.FateOf(wire.UpdateTagOf(r.Run, round, agent, update))
		}
	}
	return wire.FateRoundForgotten
}

// RoundOutcome is how a round ended. It is in the record, so that a restart can still write it to the history.
type RoundOutcome struct {
	Round             wire.RoundID
	Attempt           wire.RoundAttempt
	Kind              wire.RoundKind
	AbandonReason     AbandonReason     `json:"Abandoned"` // "" = closed
	ModelVersionAfter wire.ModelVersion `json:"Version"`   // of the model after the round
	SelectedAgents    int               `json:"Selected"`  // agents
	AcceptedUpdates   int               `json:"Accepted"`
	RoundDuration     time.Duration     `json:"Took"` // since this process first announced the round
	EndedAt           time.Time         `json:"At"`   // in UTC, to the millisecond
	Measurements      RoundMeasurements `json:"Measured"`
}

// RoundMeasurements is what the host has measured of a closed training round; nil where it has not.
type RoundMeasurements struct {
	MeanAgentRisk   *float64 `json:"Risk"` // mean of the participants' risks at the base model
	R2, Accuracy    *float64 // of the new model on held-out data
	HeldOutRisk     *float64 `json:"HeldOut,omitempty"` // the risk of the new model on held-out data
	MedianAgentRisk *float64 `json:"Median,omitempty"`  // of the participants' risks at the base model
}

// AcceptedUpdates is the updates that a round has taken. An agent may not have heard so.
type AcceptedUpdates struct {
	Round               wire.RoundID
	UpdateDigestByAgent map[wire.AgentID]wire.Digest `json:"Updates"`
}
