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
	Kind    wire.RoundKind
	Version wire.ModelVersion // of Base
	Task    wire.BlobRef
	// Base is absent in the statistics round before the first model. In a later one agents do not get it.
	Base     wire.BlobRef
	File     wire.BlobRef `json:",omitzero"` // of the model, where models are rolled out
	Schema   wire.Digest  // of the vectors sent in
	Bytes    uint32       // of a vector on the wire, packed
	Codec    spec.Codec   `json:",omitempty"` // that packs it
	Plain    uint32       `json:",omitempty"` // bytes of a raw one, from who does not know the codec; 0 = all know it
	Exchange spec.Exchange
	Endless  bool                // agents go on mixing over the rounds
	StepSize float64             // μ of the server's step, for gradient exchange
	Offset   uint64              // t: local steps of the schedule so far
	Recent   []RecentAggregation `json:",omitempty"` // of the folds before, the newest last
	// FirstTold are the first risks that agents reported in the run.
	FirstTold ReportedRisks     `json:",omitzero"`
	Suspects  []wire.AgentID    `json:",omitempty"` // see [UpdateLengthBounds.Suspect], of the fold that made Base
	Large     []LongUpdateAgent `json:",omitempty"` // agents whose last update was long, the most recent last
}

// trainingBase is the model that agents are to work on.
func (p *Plan) trainingBase() wire.BlobRef {
	if p.Kind == wire.KindStatistics {
		return wire.BlobRef{}
	}
	return p.Base
}

// acceptsManifest reports whether an update is packed as the plan's vectors are.
func (p *Plan) acceptsManifest(m *wire.Manifest) bool {
	return m.Schema == p.Schema && (m.Length == p.Bytes && m.Codec == p.Codec ||
		p.Plain > 0 && m.Length == p.Plain && m.Codec == spec.CodecRaw)
}

// bytesSavedByCodec is how many bytes fewer an update has than a raw one: a training round's model has an element for
// each.
func (p *Plan) bytesSavedByCodec(m *wire.Manifest) int64 {
	if p.Kind != wire.KindTraining {
		return 0
	}
	return max(int64(p.Base.Length)-int64(m.Length), 0)
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
	return json.Marshal(savedPlan{planWithoutMethods(p), wire.ExchangeByte(p.Exchange)})
}

// UnmarshalJSON reads a plan from the journal.
func (p *Plan) UnmarshalJSON(text []byte) error {
	var s savedPlan
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	*p = Plan(s.planWithoutMethods)
	p.Exchange = wire.ExchangeOf(s.Exchange)
	return nil
}

// Participant is an agent of the current round.
type Participant struct {
	Agent    wire.AgentID
	Times    int         // drawn so often; 0 = it trains and mixes, and sends nothing
	Weight   float64     // K·p_k
	Odds     float64     `json:",omitempty"` // K·q_k of its draw by importance; 0 = 1
	Samples  uint64      // n_k, as its hello before the draw said; 0 = not known
	Accepted wire.Digest // the update that is held; zero while there is none
	Norm     float64     `json:"-"` // ‖v_k‖₂ of that update, which the host measures again after a restart
	// Boot and PeerKey are what the participant's neighbours know it by, where agents mix.
	Boot    wire.Epoch
	PeerKey wire.X25519PublicKey
	Clips   bool `json:",omitempty"` // it knows clipped mixing, and proofs
}

// Edge joins two participants, A before B in id order, that mix with weight w_AB.
type Edge struct {
	A, B   wire.AgentID
	Weight float64
	Clip   float64 `json:",omitempty"` // τ; 0 = no bound
	Proves bool    `json:",omitempty"` // as all of the block do, or none
}

// Record is what the coordinator's machine keeps on disk. A machine made from
// the last record goes on where that one stood.
type Record struct {
	Run          wire.RunID
	Round        wire.RoundID
	Attempt      wire.Attempt
	Phase        CoordinatorPhase
	Plan         Plan
	Agents       int // K at the draw
	Participants []Participant
	Edges        []Edge // between participants, in the order of (A, B); none where agents do not mix
	// for which the edges were made: this one, unless blocks have no end; 0 where agents do not mix
	Block      wire.RoundID
	Drawn      int                   // draws of the round so far, from its seeded sequence, where agents mix
	Sidelined  []Sidelined           // in id order
	Left       []EndedEdge           `json:",omitempty"` // edges that are left out, in the order of (A, B)
	Last       *RoundOutcome         // of the last round that is over; nil before the first is
	Counted    AcceptedUpdates       // what the last closed round took
	Outcomes   []EncodedRoundOutcome `json:",omitempty"` // of the last rounds, the newest last
	Rollout    rollout.State         `json:",omitzero"`  // of models to predict with; from run to run
	Evaluated  wire.ModelVersion     `json:",omitzero"`  // the last model whose evaluation is over
	Responding ResponseLottery       `json:",omitzero"`
	Stop       stop.State            `json:",omitzero"`  // how far the run has come, where a rule ends it
	Ended      stop.Reason           `json:",omitempty"` // why the run is finished; empty if it is not
}

// outcomesKept is of how many rounds the outcome is remembered: for that long an agent may ask.
const outcomesKept = 8

// EncodedRoundOutcome is the outcome of a round that is over, as it travels: see wire.RoundOutcome.
type EncodedRoundOutcome struct {
	Round   wire.RoundID
	Outcome []byte
}

// appendOutcome remembers what became of the updates of a round.
func (r *Record) appendOutcome(o wire.RoundOutcome) {
	r.Outcomes = append(slices.Clone(r.Outcomes), EncodedRoundOutcome{o.Round, o.Body()})
	r.Outcomes = r.Outcomes[max(0, len(r.Outcomes)-outcomesKept):]
}

// NewestModel is the record's model and its file, for a rollout.
func (r *Record) NewestModel() rollout.Model {
	p := &r.Plan
	return rollout.Model{ModelName: wire.ModelName{Run: r.Run, Version: p.Version, Hash: p.Base.Hash}, File: p.File}
}

// AbandonLostRound ends the record's round, whose base model is lost, since its updates are changes of that; or which
// another task does not let go on.
func (r *Record) AbandonLostRound(now time.Time, version wire.ModelVersion, reason AbandonReason) {
	r.Stop.ForgetRisks() // the risks of the models that are lost
	r.Stop.R2, r.Stop.Accuracy, r.Ended = 0, 0, ""
	if r.Phase != CoordinatorCollecting {
		return
	}
	r.appendOutcome(wire.RoundOutcome{Round: r.Round, Abandoned: true})
	r.Last = &RoundOutcome{Round: r.Round, Attempt: r.Attempt, Kind: r.Plan.Kind, Abandoned: reason, Version: version,
		Selected: len(r.Participants), At: now.UTC().Truncate(time.Millisecond)}
}

// updateFate returns what became of an update of an earlier round.
func (r *Record) updateFate(round wire.RoundID, agent wire.AgentID, update wire.Digest) wire.UpdateFate {
	for _, s := range r.Outcomes {
		if s.Round != round {
			continue // after a round of many, each of them asks
		}
		if o, err := wire.DecodeRoundOutcome(s.Outcome); err == nil {
			return o.FateOf(wire.UpdateTagOf(r.Run, round, agent, update))
		}
	}
	return wire.FateUnknown
}

// RoundOutcome is how a round ended. It is in the record, so that a restart can still write it to the history.
type RoundOutcome struct {
	Round              wire.RoundID
	Attempt            wire.Attempt
	Kind               wire.RoundKind
	Abandoned          AbandonReason     // "" = closed
	Version            wire.ModelVersion // of the model after the round
	Selected, Accepted int               // agents
	Took               time.Duration     // since this process first announced the round
	At                 time.Time         // in UTC, to the millisecond
	Measured           RoundMeasurements
}

// RoundMeasurements is what the host has measured of a closed training round; nil where it has not.
type RoundMeasurements struct {
	Risk         *float64 // mean of the participants' risks at the base model
	R2, Accuracy *float64 // of the new model on held-out data
	HeldOut      *float64 `json:",omitempty"` // the risk of the new model on held-out data
	Median       *float64 `json:",omitempty"` // of the participants' risks at the base model
}

// AcceptedUpdates is the updates that a round has taken. An agent may not have heard so.
type AcceptedUpdates struct {
	Round   wire.RoundID
	Updates map[wire.AgentID]wire.Digest
}
