package coordinatorstatus

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/coordinator/meshplan"
	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/internal/api"
	"github.com/fedmesh/fedmesh/internal/status"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// coordinatorStatus is the state of a coordinator and its federation that `coordinator status` shows.
type coordinatorStatus struct {
	Program        string             `json:"program"`
	ProgramVersion string             `json:"version"`
	Federation     string             `json:"federation"`
	GeneratedAt    time.Time          `json:"at"` // time at which this status was generated
	Started        time.Time          `json:"started"`
	Broker         status.Link        `json:"broker"`
	Conditions     []status.Condition `json:"conditions,omitempty"`
	ShownTexts     map[string]string  `json:"values,omitempty"` // status texts recorded from events, by name

	Task TaskVersionInEffect `json:"task"`

	Phase               string        `json:"phase"`
	PhaseSince          time.Time     `json:"phase_since"`
	Round               uint64        `json:"round"`
	RoundAttempt        uint64        `json:"attempt"`
	RoundKind           string        `json:"kind,omitempty"`
	RoundOpenedAt       time.Time     `json:"opened"`   // time at which the round was opened
	RoundTimeoutSeconds float64       `json:"deadline"` // time limit of the round in seconds
	Participants        []participant `json:"participants"`
	// UploaderDraws is the number of draws that select which agents send an update. It is 0 unless agents mix, in which
	// case all agents train but only the drawn agents send.
	UploaderDraws int `json:"draws,omitempty"`

	EligibleAgents int `json:"agents"`   // number of agents that can be drawn for a round
	EnrolledAgents int `json:"enrolled"` // number of agents in the list of keys
	// EstimatedHelloAgents is the estimated number of agents that would answer if all were asked for a hello. It is 0
	// unless agents answer at random.
	EstimatedHelloAgents float64 `json:"estimated,omitempty"`
	// share of agents that were asked; 0 unless they answer at random
	HelloAskedAgentShare float64      `json:"asked,omitempty"`
	Unfit                []unfitAgent `json:"unfit,omitempty"`

	// SidelinedAgents lists the agents that failed in a round and are not drawn in the next rounds.
	SidelinedAgents []sidelinedAgent `json:"sit_out,omitempty"`
	// LargeUpdates lists the agents whose recent updates were all unusually large.
	LargeUpdates []largeUpdates `json:"large_updates,omitempty"`

	Aggregations uint64 `json:"aggregations"` // number of aggregations that produced the newest model
	// number of aggregations after which the run is finished
	MaxAggregations   uint64   `json:"wanted,omitempty"`
	AbandonedRounds   int      `json:"abandoned"` // rounds abandoned since the coordinator started
	AcceptedUpdates   int      `json:"accepted"`  // updates accepted since the coordinator started
	AggregatedUpdates int      `json:"folded"`    // number of accepted updates in a model on disk
	HeldOutRisk       *float64 `json:"held_out_risk,omitempty"`
	HeldOutR2         *float64 `json:"held_out_r2,omitempty"`
	HeldOutAccuracy   *float64 `json:"held_out_accuracy,omitempty"`
	// LastAgentEvaluation is the last evaluation of the model on the agents' held-out rows. It is nil before the first
	// evaluation.
	LastAgentEvaluation *coordinator.ModelEvaluation `json:"evaluation,omitempty"`
	// mean risk of the participants in the most recent rounds
	Losses       []float64            `json:"losses"`
	Mesh         *meshplan.Mesh       `json:"mesh,omitempty"`
	Rollout      *round.RolloutStatus `json:"rollout,omitempty"`
	StopProgress *round.StopProgress  `json:"stop,omitempty"`  // nil if no stop rule is configured
	RunEndReason string               `json:"ended,omitempty"` // reason why the run is finished
	ScheduleWait *round.ScheduleWait  `json:"waits,omitempty"` // set while the next round waits for the schedule
	Refusals     []status.Refusal     `json:"refusals"`
}

// TaskVersionInEffect is the version of the task that is in effect.
type TaskVersionInEffect struct {
	Version     uint64    `json:"version"`
	AppliedAt   time.Time `json:"at"`             // time when this version was applied
	NextVersion uint64    `json:"next,omitempty"` // version that applies after this round; 0 if none
}

type participant struct {
	Agent          string  `json:"agent"`
	State          string  `json:"state"` // invited, at work, accepted or out
	LocalSteps     uint32  `json:"local_steps,omitempty"`
	SecondsToState float64 `json:"after,omitempty"` // seconds from the announcement to the state
	OutReason      string  `json:"why,omitempty"`   // reason why the participant is out
}

// The states of a participant.
const (
	stateInvited  = "invited"
	stateWorking  = "at work"
	stateAccepted = "accepted"
	stateOut      = "out"
)

// unfitAgent describes an agent that cannot do the task.
type unfitAgent struct {
	Agent  string `json:"agent"`
	Reason string `json:"reason"`
	// The fields below describe the agent's data. They are empty if it has not reported them.
	Column           string `json:"column,omitempty"`
	ColumnProblem    string `json:"why,omitempty"`   // reason why the column's values are not used
	BadValueLocation string `json:"where,omitempty"` // file and line, or topic, of one of these values
	BadValues        uint64 `json:"bad,omitempty"`   // number of unusable values or rows
	TotalValues      uint64 `json:"all,omitempty"`

	decline wire.DeclineReason // Reason, for look-ups
}

// String returns the agent's id and the reason why the agent cannot do the task.
func (u unfitAgent) String() string { return u.Agent + " (" + u.unfitReasonText() + ")" }

// unfitReasonText describes why the agent is unfit. Texts from the agent are quoted.
func (u unfitAgent) unfitReasonText() string {
	text := u.Reason
	if u.Column != "" {
		text += fmt.Sprintf(", column %q", u.Column)
	}
	if u.ColumnProblem != "" {
		text += fmt.Sprintf(", %q", u.ColumnProblem)
	}
	if u.TotalValues > 0 {
		text += fmt.Sprintf(", %d of %d values", u.BadValues, u.TotalValues)
	}
	if u.BadValueLocation != "" {
		text += fmt.Sprintf(", %q", u.BadValueLocation)
	}
	return text
}

// largeUpdates describes an agent with unusually large updates. Norms are multiples of the usual norm.
type largeUpdates struct {
	Agent               string  `json:"agent"`
	ConsecutiveRounds   int     `json:"folds"`   // number of consecutive rounds with large updates
	RelativeUpdateNorm  float64 `json:"length"`  // norm of the last update / usual norm
	RelativeClippedNorm float64 `json:"counted"` // norm after clipping / usual norm; 0 if left out
}

// String describes the large updates of the agent.
func (l largeUpdates) String() string {
	counted := fmt.Sprintf("clipped to %.3g", l.RelativeClippedNorm)
	switch {
	case l.RelativeClippedNorm == 0:
		counted = "left out"
	case l.RelativeClippedNorm >= 0.999*l.RelativeUpdateNorm:
		counted = "not clipped"
	}
	return fmt.Sprintf("%s (norm %.3g times the usual norm in the last of %d rounds, %s)",
		l.Agent, l.RelativeUpdateNorm,
		l.ConsecutiveRounds,
		counted)
}

// sidelinedAgent is an agent that is not drawn for some rounds.
type sidelinedAgent struct {
	Agent              string `json:"agent"`
	Reason             string `json:"reason"`
	LastSidelinedRound uint64 `json:"until"` // last round from which the agent is excluded
}

// StatusTracker keeps the status page of a coordinator and the table of its devices up to date from its events.
type StatusTracker struct {
	now   func() time.Time
	board *status.ConditionBoard

	mu                      sync.Mutex // guards the fields below, which other goroutines read
	current                 coordinatorStatus
	participantIndexByAgent map[wire.AgentID]int          // index in current.Participants
	deviceByID              map[wire.AgentID]*deviceEntry // table of devices
	trainingDeviceByID      map[wire.AgentID]*deviceEntry // devices that train in the open round
	hasUnsavedChanges       bool                          // the history of a device has changed since the last save
	// rejectedModelReplacementVersion is the version that replaced the last rejected model; 0 if there is none.
	rejectedModelReplacementVersion wire.ModelVersion
	mixingGraph                     meshplan.MixingGraph // graph of the last round with mixing; empty before
	suspendedEdges                  []SuspendedEdge      // edges that were suspended from mixing
}

// New returns the tracker of a coordinator that has just started.
func New(version, federation string, now func() time.Time, board *status.ConditionBoard) *StatusTracker {
	return &StatusTracker{
		now: now, board: board, participantIndexByAgent: map[wire.AgentID]int{},
		deviceByID: map[wire.AgentID]*deviceEntry{}, trainingDeviceByID: map[wire.AgentID]*deviceEntry{},
		current: coordinatorStatus{
			Program: "coordinator", ProgramVersion: version, Federation: federation, Started: now(),
			Broker: status.Link{Since: now()}, Phase: "idle", PhaseSince: now(),
			Participants: []participant{},
			Losses:       []float64{}, Refusals: []status.Refusal{},
		},
	}
}

// RecordCoordinatorStart records the configuration of a starting coordinator and the summary of its run so far.
func (v *StatusTracker) RecordCoordinatorStart(task TaskVersionInEffect, cfg *round.Config, p runs.EarlierRunSummary) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, d := range v.deviceByID {
		d.largeUpdates = nil
	}
	v.current.Task, v.current.MaxAggregations, v.current.RoundTimeoutSeconds, v.current.UploaderDraws = task,
		uint64(cfg.MaxAggregations), cfg.RoundTimeout.Seconds(), 0
	if cfg.Algorithm == spec.FedDec {
		v.current.UploaderDraws = cfg.Participants
	}
	v.current.Aggregations, v.current.HeldOutR2, v.current.HeldOutAccuracy = uint64(p.Version), p.R2, p.Accuracy
	v.current.Losses = slices.Clone(p.MeanAgentRisks)
	v.current.RunEndReason = ""
	var removed observe.EventDescription // these values are removed here, because later events show them again
	for _, name := range []string{meshplan.MeshValue, round.RolloutValue, round.RolloutOutcomeValue,
		round.StopProgressValue, round.ScheduleWaitValue} {
		removed.ShowStatusValue(name, nil)
	}
	v.board.ApplyDescription(&removed)
}

// SetNextTaskVersion records the version of the task that takes effect after the current round; 0 if there is none.
func (v *StatusTracker) SetNextTaskVersion(version uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.current.Task.NextVersion = version
}

// Phase returns the current phase of the run.
func (v *StatusTracker) Phase() round.CoordinatorPhase {
	v.mu.Lock()
	defer v.mu.Unlock()
	return round.CoordinatorPhase(v.current.Phase)
}

// Status returns a copy of the current state.
func (v *StatusTracker) Status() status.DrawableStatus {
	v.mu.Lock()
	defer v.mu.Unlock()
	p := v.current
	p.GeneratedAt = v.now()
	p.Participants, p.Losses, p.Refusals = slices.Clone(p.Participants), slices.Clone(p.Losses),
		slices.Clone(p.Refusals)
	for _, agent := range slices.Sorted(maps.Keys(v.deviceByID)) {
		d := v.deviceByID[agent]
		if d.unfit != nil {
			p.Unfit = append(p.Unfit, *d.unfit)
		}
		if d.lastSidelinedRound > 0 {
			p.SidelinedAgents = append(p.SidelinedAgents, sidelinedAgent{string(agent), string(d.sidelineReason),
				uint64(d.lastSidelinedRound)})
		}
		if d.largeUpdates != nil {
			p.LargeUpdates = append(p.LargeUpdates, *d.largeUpdates)
		}
	}
	p.Conditions, p.ShownTexts = v.board.Conditions(), v.board.ShownTexts()
	p.addShownValues(v.board)
	return &p
}

// addShownValues copies the status values of the condition board into c.
func (c *coordinatorStatus) addShownValues(b *status.ConditionBoard) {
	c.LastAgentEvaluation = status.ShownValue[*coordinator.ModelEvaluation](b, coordinator.ModelEvaluationValue)
	c.Mesh = status.ShownValue[*meshplan.Mesh](b, meshplan.MeshValue)
	c.StopProgress = status.ShownValue[*round.StopProgress](b, round.StopProgressValue)
	c.ScheduleWait = status.ShownValue[*round.ScheduleWait](b, round.ScheduleWaitValue)
	running := status.ShownValue[*round.RolloutStatus](b, round.RolloutValue)
	c.Rollout = status.ShownValue[*round.RolloutStatus](b, round.RolloutOutcomeValue)
	if running != nil {
		now := *running
		if last := c.Rollout; last != nil {
			now.LastRolloutOutcome, now.LastRolloutModel = last.LastRolloutOutcome, last.LastRolloutModel
		}
		c.Rollout = &now
	}
}

// findOrAddParticipant returns an agent's entry in the round. It adds one for an agent that replaces another.
func (v *StatusTracker) findOrAddParticipant(agent wire.AgentID) *participant {
	i, known := v.participantIndexByAgent[agent]
	if !known {
		i = len(v.current.Participants)
		v.participantIndexByAgent[agent] = i
		v.current.Participants = append(v.current.Participants, participant{Agent: string(agent), State: stateInvited})
	}
	return &v.current.Participants[i]
}

// StatusRoute returns the API route that serves the status.
func (v *StatusTracker) StatusRoute() api.Route {
	return api.GetRoute(status.Path, "Return the status of the coordinator and its federation.",
		func(*http.Request) (*coordinatorStatus, error) { return v.Status().(*coordinatorStatus), nil })
}
