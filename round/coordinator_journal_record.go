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

// CoordinatorPhase is the phase of a run in the coordinator's state machine.
type CoordinatorPhase string

// The phases of the coordinator.
const (
	// The coordinator has no open round: before the run, and between rounds.
	CoordinatorIdle       CoordinatorPhase = "idle"
	CoordinatorGathering  CoordinatorPhase = "gathering"  // agents are asked to report that they are present
	CoordinatorCollecting CoordinatorPhase = "collecting" // a round is announced, and updates arrive
	// The coordinator aggregates the updates. The journal still records the round as open.
	CoordinatorClosing  CoordinatorPhase = "closing"
	CoordinatorPaused   CoordinatorPhase = "paused" // the run is paused until an operator resumes it
	CoordinatorFinished CoordinatorPhase = "finished"
)

// CoordinatorPhases returns all phases, for example to initialise metric labels.
func CoordinatorPhases() []CoordinatorPhase {
	return []CoordinatorPhase{CoordinatorIdle, CoordinatorGathering, CoordinatorCollecting, CoordinatorClosing,
		CoordinatorPaused, CoordinatorFinished}
}

// Plan describes what a round computes and from which base model. The host (the program around the state machine)
// creates the plan, since the host stores the models.
type Plan struct {
	Kind             wire.RoundKind
	BaseModelVersion wire.ModelVersion `json:"Version"` // version of the model in BaseModel
	Task             wire.BlobRef
	// BaseModel is the model from which the round starts. It is empty in a statistics round (a round that collects
	// column statistics) before the first model of a run.
	BaseModel wire.BlobRef `json:"Base"`
	// exported model file with which agents make predictions; empty if models are not rolled out
	ModelFile    wire.BlobRef `json:"File,omitzero"`
	UpdateSchema wire.Digest  `json:"Schema"`     // digest of the schema of the update vectors
	UpdateBytes  uint32       `json:"Bytes"`      // size of an encoded update vector in bytes
	Codec        spec.Codec   `json:",omitempty"` // codec with which agents encode update vectors
	// size in bytes of an uncompressed update, for agents that do not support Codec; 0 if all agents support it
	RawUpdateBytes uint32 `json:"Plain,omitempty"`
	Exchange       spec.ExchangeKind
	// whether a mixing block lasts for many rounds, so that agents exchange parameters with their neighbours without
	// interruption
	HasEndlessBlocks bool    `json:"Endless"`
	ServerStepSize   float64 `json:"StepSize"` // server step size μ, for gradient exchange
	// number t of local steps in all earlier rounds; the step size schedule continues from this number
	LocalStepOffset uint64 `json:"Offset"`
	// summaries of the previous aggregations, newest last
	RecentAggregations []PastAggregationSummary `json:"Recent,omitempty"`
	// FirstReportedRisks summarises the risks that agents reported for the first model of the run.
	FirstReportedRisks ReportedRiskSummary `json:"FirstTold,omitzero"`
	// agents with the largest updates in the last aggregation, which are blamed if the model turns out to have
	// diverged: see UpdateNormAssessment.SuspectAgents
	SuspectAgents []wire.AgentID `json:"Suspects,omitempty"`
	// agents whose last update had an unusually large norm, sorted by the time of that update, most recent last
	LargeNormAgents []LargeNormAgent `json:"Large,omitempty"`
}

// trainingBaseModel returns the reference to the base model that agents download for training. The reference is empty
// in a statistics round, in which agents do not train.
func (p *Plan) trainingBaseModel() wire.BlobRef {
	if p.Kind == wire.KindStatistics {
		return wire.BlobRef{}
	}
	return p.BaseModel
}

// acceptsManifest reports whether the schema, size and codec of an update match the plan.
func (p *Plan) acceptsManifest(m *wire.Manifest) bool {
	return m.VectorSchema == p.UpdateSchema && (m.BlobLength == p.UpdateBytes && m.Codec == p.Codec ||
		p.RawUpdateBytes > 0 && m.BlobLength == p.RawUpdateBytes && m.Codec == spec.CodecRaw)
}

// bytesSavedByCodec returns the number of bytes that the codec saves: the size of the uncompressed update, which equals
// the size of the model, minus the size of the encoded update.
func (p *Plan) bytesSavedByCodec(m *wire.Manifest) int64 {
	if p.Kind != wire.KindTraining {
		return 0
	}
	return max(int64(p.BaseModel.Length)-int64(m.BlobLength), 0)
}

// planWithoutMethods has the fields of Plan but no methods, so that MarshalJSON can encode it without calling itself.
type planWithoutMethods Plan

// savedPlan is the JSON form of a Plan in the journal. It stores the kind of exchange as a protocol code.
type savedPlan struct {
	planWithoutMethods
	Exchange uint8 // protocol code of the kind of exchange; 0 means none, as in a statistics round
}

// MarshalJSON encodes the plan for the journal.
func (p Plan) MarshalJSON() ([]byte, error) {
	return json.Marshal(savedPlan{planWithoutMethods(p), wire.ExchangeKindCode(p.Exchange)})
}

// UnmarshalJSON decodes a plan from the journal.
func (p *Plan) UnmarshalJSON(text []byte) error {
	var s savedPlan
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	*p = Plan(s.planWithoutMethods)
	p.Exchange = wire.ExchangeKindOfCode(s.Exchange)
	return nil
}

// Participant is an agent that takes part in the current round.
type Participant struct {
	Agent wire.AgentID
	// number of draws that selected the agent; 0 means that the agent trains and mixes without sending an update
	DrawCount int `json:"Times"`
	// weight K·p_k of the agent in the average, where K is the number of agents and p_k is the agent's share
	Weight float64
	// odds K·q_k of the agent for importance sampling, where q_k is the agent's draw probability and K is the number of
	// agents; 0 means 1
	Odds float64 `json:",omitempty"`
	// number of samples n_k in the agent's last hello message before the draw; 0 means unknown
	RowCount uint64 `json:"Samples"`
	// digest of the agent's accepted update; zero if no update was accepted
	AcceptedUpdateDigest wire.Digest `json:"Accepted"`
	// UpdateNorm is the Euclidean norm ‖v_k‖₂ of the accepted update. The journal does not contain it; after a restart
	// the host reads the norm from the stored update.
	UpdateNorm  float64    `json:"-"`
	UpdateCodec spec.Codec `json:"-"`
	// risk of the base model on the agent's local data, as reported by the agent
	ReportedRisk float64 `json:"-"`
	// Boot is a number that identifies the process of the agent; it changes when the agent restarts. Neighbours that
	// mix parameters with the agent address it by Boot and PeerKey.
	Boot    wire.Epoch
	PeerKey wire.X25519PublicKey
	// whether the agent supports mixing with clipped parameter differences and can prove which parameters it sent
	SupportsClipping bool `json:"Clips,omitempty"`
}

// MixingEdge connects two participants that average their parameters with the edge weight w_AB. The id of A precedes
// the id of B.
type MixingEdge struct {
	A, B         wire.AgentID
	MixingWeight float64 `json:"Weight"`
	// maximum norm τ of the parameter difference that the two agents mix; 0 means no bound
	ClipBound float64 `json:"Clip,omitempty"`
	// whether an agent must prove the parameters that it sends to a neighbour; all edges of a block have the same value
	RequiresProofs bool `json:"Proves,omitempty"`
}

// JournalRecord is the state of the coordinator's machine on disk. A restarted coordinator continues from the last
// saved record.
type JournalRecord struct {
	Run            wire.RunID
	Round          wire.RoundID
	Attempt        wire.RoundAttempt
	Phase          CoordinatorPhase
	Plan           Plan
	EligibleAgents int `json:"Agents"` // number K of agents from which the participants could be drawn
	Participants   []Participant
	Edges          []MixingEdge // edges between participants, sorted by (A, B); empty if agents do not mix
	// MixingBlockRound is the round for which Edges was computed, or 0 if agents do not mix. With
	// Plan.HasEndlessBlocks, it may be an earlier round than the current one.
	MixingBlockRound wire.RoundID `json:"Block"`
	// number of random draws made in the current round with mixing; a restarted coordinator continues the sequence of
	// draws after this number
	RandomDrawsMade int `json:"Drawn"`
	// agents that are temporarily excluded from draws, in id order
	SidelinedAgents []SidelinedAgent `json:"Sidelined"`
	// edges that are temporarily excluded from mixing, sorted by the ids (A, B) of their agents
	EndedEdges []EndedEdge `json:"Left,omitempty"`
	// outcome of the last round that has ended; nil if no round of the run has ended yet
	LastOutcome         *RoundOutcome   `json:"Last"`
	LastAcceptedUpdates AcceptedUpdates `json:"Counted"` // updates accepted in the last closed round
	// encoded outcomes of the last rounds, newest last
	RecentOutcomes []EncodedRoundOutcome `json:"Outcomes,omitempty"`
	// state of the staged release of models for predictions; kept when a new run begins
	Rollout rollout.State `json:",omitzero"`
	// version of the last model that agents have evaluated
	LastEvaluatedVersion wire.ModelVersion `json:"Evaluated,omitzero"`
	ResponseLottery      ResponseLottery   `json:"Responding,omitzero"`
	StopState            stop.State        `json:"Stop,omitzero"` // state of the rules that may end the run
	// reason why the run is finished; empty while the run continues
	RunStopReason stop.Reason `json:"Ended,omitempty"`
}

// maxRecentOutcomes is the number of past rounds whose outcomes the record keeps, for agents that ask for them.
const maxRecentOutcomes = 8

// EncodedRoundOutcome is the encoded outcome of an ended round: see wire.RoundOutcome.
type EncodedRoundOutcome struct {
	Round   wire.RoundID
	Outcome []byte
}

// appendRoundOutcome adds the outcome of a round and removes the oldest outcome if there are more than
// maxRecentOutcomes.
func (r *JournalRecord) appendRoundOutcome(o wire.RoundOutcome) {
	r.RecentOutcomes = append(slices.Clone(r.RecentOutcomes), EncodedRoundOutcome{o.Round, o.Body()})
	r.RecentOutcomes = r.RecentOutcomes[max(0, len(r.RecentOutcomes)-maxRecentOutcomes):]
}

// NewestModel returns the newest model of the run and its file, as a candidate for a rollout.
func (r *JournalRecord) NewestModel() rollout.Model {
	p := &r.Plan
	return rollout.Model{ModelRef: wire.ModelRef{Run: r.Run, Version: p.BaseModelVersion,
		ParametersDigest: p.BaseModel.Hash},
		File: p.ModelFile}
}

// AbandonUnrecoverableRound abandons the record's open round, because the base model is lost or the task has changed.
// The round's updates cannot be used any more.
func (r *JournalRecord) AbandonUnrecoverableRound(now time.Time, version wire.ModelVersion, reason AbandonReason) {
	r.StopState.ForgetRisks() // The recorded risks belong to models that are lost.
	r.StopState.R2, r.StopState.Accuracy, r.RunStopReason = 0, 0, ""
	if r.Phase != CoordinatorCollecting {
		return
	}
	r.appendRoundOutcome(wire.RoundOutcome{Round: r.Round, IsAbandoned: true})
	r.LastOutcome = &RoundOutcome{Round: r.Round, Attempt: r.Attempt, Kind: r.Plan.Kind, AbandonReason: reason,
		ModelVersionAfter: version,
		SelectedAgents:    len(r.Participants), EndedAt: now.UTC().Truncate(time.Millisecond)}
}

// updateFate returns whether an agent's update was aggregated in an earlier round.
func (r *JournalRecord) updateFate(round wire.RoundID, agent wire.AgentID, update wire.Digest) wire.UpdateFate {
	for _, s := range r.RecentOutcomes {
		if s.Round != round {
			continue // The record does not contain the outcome of a large round, which agents download separately.
		}
		if o, err := wire.DecodeRoundOutcome(s.Outcome); err == nil {
			return o.FateOf(wire.UpdateTagOf(r.Run, round, agent, update))
		}
	}
	return wire.FateRoundForgotten
}

// RoundOutcome describes how a round ended. The journal record contains it so that a restarted process can still write
// it to the history.
type RoundOutcome struct {
	Round   wire.RoundID
	Attempt wire.RoundAttempt
	Kind    wire.RoundKind
	// reason for abandoning the round; empty if its updates were aggregated
	AbandonReason     AbandonReason     `json:"Abandoned"`
	ModelVersionAfter wire.ModelVersion `json:"Version"`  // version of the model after the round
	SelectedAgents    int               `json:"Selected"` // number of agents that were drawn for the round
	AcceptedUpdates   int               `json:"Accepted"`
	RoundDuration     time.Duration     `json:"Took"` // time since this process first announced the round
	EndedAt           time.Time         `json:"At"`   // end of the round in UTC, to the millisecond
	Measurements      RoundMeasurements `json:"Measured"`
}

// RoundMeasurements contains the host's measurements of a closed training round. A nil value was not measured.
type RoundMeasurements struct {
	MeanAgentRisk   *float64 `json:"Risk"` // mean of the participants' risks at the base model
	R2, Accuracy    *float64 // scores of the new model on held-out data
	HeldOutRisk     *float64 `json:"HeldOut,omitempty"` // risk of the new model on held-out data
	MedianAgentRisk *float64 `json:"Median,omitempty"`  // median of the participants' risks at the base model
}

// AcceptedUpdates lists the updates accepted in a round, so that a lost acceptance message can be sent again.
type AcceptedUpdates struct {
	Round               wire.RoundID
	UpdateDigestByAgent map[wire.AgentID]wire.Digest `json:"Updates"`
}
