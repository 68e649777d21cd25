package agentstatus

import (
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/fedmesh/fedmesh/agent/announcement"
	"github.com/fedmesh/fedmesh/agent/budget"
	"github.com/fedmesh/fedmesh/agent/identity"
	"github.com/fedmesh/fedmesh/agent/predict"
	"github.com/fedmesh/fedmesh/agent/presence"
	"github.com/fedmesh/fedmesh/agent/taskdata"
	"github.com/fedmesh/fedmesh/agent/training"
	"github.com/fedmesh/fedmesh/agent/upload"
	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/internal/api"
	"github.com/fedmesh/fedmesh/internal/status"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// agentStatus is the state of an agent that `agentd status` shows.
type agentStatus struct {
	Program        string             `json:"program"`
	ProgramVersion string             `json:"version"`
	Federation     string             `json:"federation"`
	ID             string             `json:"id"`
	GeneratedAt    time.Time          `json:"at"` // time at which this status was generated
	Started        time.Time          `json:"started"`
	Broker         status.Link        `json:"broker"`
	Conditions     []status.Condition `json:"conditions,omitempty"`
	ShownTexts     map[string]string  `json:"values,omitempty"` // status texts recorded from events, by name

	AnnouncedRound uint64 `json:"round"` // number of the round in the announcement that the agent follows
	// AnnouncedPhase is the phase in the current announcement: gathering, open, idle or finished. AnnouncedPhase is
	// empty without an announcement.
	AnnouncedPhase string     `json:"phase"`
	Work           *roundWork `json:"work,omitempty"`
	// TaskFitness is "fit" if the agent can execute the task, and otherwise the reason why it cannot. TaskFitness is
	// empty before the first announcement.
	TaskFitness string `json:"fit"`
	// MissingAnnouncement is the reason for a missing announcement. It is empty if an announcement has arrived or the
	// agent is still waiting.
	MissingAnnouncement announcement.MissingReason `json:"announcement_missing,omitempty"`
	Rows                uint64                     `json:"rows"`
	// number of rows that were skipped because a value is missing
	RowsMissingValues int           `json:"rows_not_made"`
	Inputs            []inputStatus `json:"inputs,omitempty"`
	// wait for the device while it trains for another federation; nil if the agent is not waiting
	TrainingWait *trainingWait `json:"waits,omitempty"`
	// LastTraining summarizes the most recent local training. LastTraining is nil before the first training.
	LastTraining   *trainingSummary `json:"trained,omitempty"`
	RoundsByResult map[string]int   `json:"results"` // number of rounds since the agent started, by result
	UpdatesByFate  map[string]int   `json:"updates"` // number of updates of finished rounds, by outcome
	// risk (mean loss) of the model at the start of each recent round, on the local data
	RecentLosses   []float64             `json:"losses"`
	RecentRefusals []status.Refusal      `json:"refusals"`
	Budget         *budget.TrafficBudget `json:"budget,omitempty"`
	Model          *predict.ModelInUse   `json:"model,omitempty"` // model that the device uses for predictions

	CertificateEndsAt time.Time `json:"certificate_expires,omitzero"` // expiry of the broker certificate
}

// inputStatus counts the received, used and unused values of one input or CSV column.
type inputStatus struct {
	Name           string     `json:"name"` // name of the input or column; "" for unreadable payloads
	ReceivedValues uint64     `json:"came"`
	UsedValues     uint64     `json:"used"`
	NewestValueAt  *time.Time `json:"newest,omitempty"` // timestamp of the newest value, or nil
	// number of unused values and rows, by reason
	UnusedByReason     map[data.UnusedReason]uint64 `json:"unused,omitempty"`
	LastUnusedLocation string                       `json:"where,omitempty"` // location of the last unused value
	// LastUnusedProblem describes the last unused value and its fault.
	LastUnusedProblem string `json:"problem,omitempty"`
}

// inputStatusesFromReport returns the status of the first [spec.MaxInputs] columns of a report. The limit exists
// because a CSV file may have thousands of columns.
func inputStatusesFromReport(r data.QualityReport) []inputStatus {
	var all []inputStatus
	for _, c := range r.Columns[:min(len(r.Columns), spec.MaxInputs)] {
		in := inputStatus{Name: c.Name, ReceivedValues: c.ReceivedValues, UsedValues: c.Used, UnusedByReason: c.Unused,
			LastUnusedLocation: c.LastUnusedWhere,
			LastUnusedProblem:  c.LastUnusedProblem}
		if c.NewestTime != 0 {
			at := time.Unix(0, c.NewestTime).UTC()
			in.NewestValueAt = &at
		}
		all = append(all, in)
	}
	return all
}

// roundWork describes the agent's work in a round.
type roundWork struct {
	Round                 uint64    `json:"round"`
	Kind                  string    `json:"kind"`
	StartedAt             time.Time `json:"since"`
	Deadline              time.Time `json:"until"` // deadline of the round
	HasFinishedLocalSteps bool      `json:"done"`  // the local steps are done and the update is being sent
}

// trainingWait describes a federation that waits for the device to finish training for another federation.
type trainingWait struct {
	BusyFederation string    `json:"for"` // federation that the device currently trains for
	WaitingSince   time.Time `json:"since"`
}

// trainingSummary describes the local steps of a round.
type trainingSummary struct {
	Round               uint64  `json:"round"`
	LocalSteps          int     `json:"local_steps"`
	StepCountReason     string  `json:"because"`
	SecondsPerLocalStep float64 `json:"step_time"` // duration of one local step in seconds
	TrainingSeconds     float64 `json:"took"`      // duration of all local steps in seconds
	// seconds spent waiting while the device trained for other federations
	LockWaitSeconds float64  `json:"waited"`
	RiskBefore      *float64 `json:"risk_before,omitempty"`
	RiskAfter       *float64 `json:"risk_after,omitempty"`
	// number of flows (weighted parameter differences) from neighbours that were applied to the model
	AppliedNeighborFlows uint64 `json:"flows,omitempty"`
	LateNeighborFlows    uint64 `json:"late,omitempty"` // number of applied flows that arrived late
}

// StatusTracker keeps the status page of an agent up to date.
type StatusTracker struct {
	now     func() time.Time
	mu      sync.Mutex // guards the field current, which other goroutines read
	current agentStatus
	board   *status.ConditionBoard
}

var _ observe.Observer = (*StatusTracker)(nil)

// New returns the tracker of an agent that has just started.
func New(version, federation, id string, now func() time.Time, board *status.ConditionBoard) *StatusTracker {
	return &StatusTracker{now: now, board: board, current: agentStatus{
		Program: "agentd", ProgramVersion: version, Federation: federation, ID: id, Started: now(),
		Broker:         status.Link{Since: now()},
		RoundsByResult: map[string]int{}, UpdatesByFate: map[string]int{}, RecentLosses: []float64{},
		RecentRefusals: []status.Refusal{},
	}}
}

// Status returns a copy of the current state.
func (v *StatusTracker) Status() status.DrawableStatus {
	v.mu.Lock()
	defer v.mu.Unlock()
	p := v.current
	p.GeneratedAt = v.now()
	p.RecentLosses, p.RecentRefusals = slices.Clone(p.RecentLosses), slices.Clone(p.RecentRefusals)
	p.RoundsByResult, p.UpdatesByFate = maps.Clone(v.current.RoundsByResult), maps.Clone(v.current.UpdatesByFate)
	p.Conditions, p.ShownTexts = v.board.Conditions(), v.board.ShownTexts()
	p.addShownValues(v.board)
	return &p
}

// ConsoleRow returns the status as a row for the page of the device, with the federation as key. The time at which the
// status was generated is left out, since the row would otherwise change with each call.
func (v *StatusTracker) ConsoleRow() (federation string, row any) {
	s := v.Status().(*agentStatus)
	s.GeneratedAt = time.Time{}
	return s.Federation, s
}

// addShownValues copies the status values of the condition board into a.
func (a *agentStatus) addShownValues(b *status.ConditionBoard) {
	if at := status.ShownValue[*wire.AnnouncementPosition](b, agentround.AnnouncementObeyedValue); at != nil {
		a.AnnouncedRound, a.AnnouncedPhase = uint64(at.Round), at.Phase.String()
	}
	if c := status.ShownValue[*agentround.TaskFitnessChecked](b, agentround.TaskFitnessValue); c != nil {
		a.Rows, a.TaskFitness = c.RowCount, c.Fitness()
	}
	a.MissingAnnouncement = status.ShownValue[announcement.AnnouncementMissing](b,
		announcement.AnnouncementMissingValue).Reason
	report := status.ShownValue[data.QualityReport](b, taskdata.SourceReportValue)
	a.RowsMissingValues, a.Inputs = report.BadRows, inputStatusesFromReport(report)
	a.Budget = status.ShownValue[*budget.TrafficBudget](b, budget.TrafficBudgetValue)
	a.Model = status.ShownValue[*predict.ModelInUse](b, predict.ModelInUseValue)
	a.CertificateEndsAt = status.ShownValue[time.Time](b, identity.CertificateExpiryValue)
}

// TaskObstacles returns the last events that explain why the agent has no task. Either no announcement has arrived, or
// the coordinator ignores the agent's messages. Both results are zero values if no problem is known.
func (v *StatusTracker) TaskObstacles() (announcement.AnnouncementMissing, presence.MessagesRejected) {
	return status.ShownValue[announcement.AnnouncementMissing](v.board, announcement.AnnouncementMissingValue),
		status.ShownValue[presence.MessagesRejected](v.board, presence.MessagesRejectedValue)
}

// Observe implements observe.Observer and updates the parts of the status page that depend on the clock or on several
// events. The condition board holds the conditions and values that single events show.
func (v *StatusTracker) Observe(e observe.Event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	p := &v.current
	switch e := e.(type) {
	case agentround.WorkStarted:
		p.Work = &roundWork{Round: uint64(e.Round), Kind: e.Kind.String(), StartedAt: v.now(),
			Deadline: v.now().Add(e.TimeLeft)}
	case agentround.WorkEnded:
		v.recordRoundWorkEnd(e)
	case upload.UpdateFateReceived:
		p.UpdatesByFate[e.Fate.String()]++
	case training.LocalTrainingFinished:
		v.recordTraining(e)
	case training.LockAwaited:
		if p.TrainingWait = nil; e.HolderFederation != "" {
			p.TrainingWait = &trainingWait{e.HolderFederation, v.now()}
		}
	case training.LocalTrainingFailed:
		v.addRefusal(e.Round, "no update", e.Err.Error())
	case host.BrokerLinkChanged:
		if e.ReconnectAt.IsZero() {
			p.Broker.SetConnected(v.now(), e.IsConnected, e.Err)
		} else {
			p.Broker.SetPaused(v.now(), e.ReconnectAt)
		}
	}
}

func (v *StatusTracker) recordRoundWorkEnd(e agentround.WorkEnded) {
	v.current.Work = nil
	v.current.RoundsByResult[string(e.Result)]++
	if reason := e.Reason(); reason != "" {
		v.addRefusal(e.Round, string(e.Result), reason)
	}
}

func (v *StatusTracker) addRefusal(r wire.RoundID, kind, reason string) {
	v.current.RecentRefusals = status.AppendBounded(v.current.RecentRefusals, status.KeptRefusals,
		status.Refusal{At: v.now(), Round: uint64(r), Kind: kind, Reason: reason})
}

func (v *StatusTracker) recordTraining(f training.LocalTrainingFinished) {
	v.current.LastTraining = &trainingSummary{
		Round: uint64(f.Round), LocalSteps: f.LocalSteps, StepCountReason: f.StepCountReason.String(),
		SecondsPerLocalStep: f.StepTime.Seconds(),
		TrainingSeconds:     f.LocalStepsDuration.Seconds(), LockWaitSeconds: f.LockWait.Seconds(),
		RiskBefore: observe.FiniteOrNil(f.RiskBefore), RiskAfter: observe.FiniteOrNil(f.RiskAfter),
	}
	if f.MixingStats != nil {
		v.current.LastTraining.AppliedNeighborFlows,
			v.current.LastTraining.LateNeighborFlows = f.MixingStats.AppliedFlows,
			f.MixingStats.LateFlows
	}
	if v.current.Work != nil {
		done := *v.current.Work // copy: earlier status snapshots share the old value
		done.HasFinishedLocalSteps = true
		v.current.Work = &done
	}
	if risk := observe.FiniteOrNil(f.RiskBefore); risk != nil {
		v.current.RecentLosses = status.AppendBounded(v.current.RecentLosses, status.KeptLosses, *risk)
	}
}

// StatusRoute returns the API route that serves the status.
func (v *StatusTracker) StatusRoute() api.Route {
	return api.GetRoute(status.Path, "Return the agent's status.", func(*http.Request) (*agentStatus, error) {
		return v.Status().(*agentStatus), nil
	})
}
