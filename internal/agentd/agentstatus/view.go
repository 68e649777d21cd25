package agentstatus

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/internal/api"
	"github.com/fedmesh/fedmesh/internal/status"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// agentStatus is the state of an agent, as agentd status shows it.
type agentStatus struct {
	Program     string             `json:"program"`
	Version     string             `json:"version"`
	Federation  string             `json:"federation"`
	ID          string             `json:"id"`
	GeneratedAt time.Time          `json:"at"` // of the picture
	Started     time.Time          `json:"started"`
	Broker      status.Link        `json:"broker"`
	Conditions  []status.Condition `json:"conditions,omitempty"`
	Problems    []string           `json:"problems,omitempty"`

	Round   uint64     `json:"round"` // of the announcement that is obeyed
	Phase   string     `json:"phase"` // of that announcement: gathering, open, idle or finished; empty without one
	Work    *roundWork `json:"work,omitempty"`
	Fitness string     `json:"fit"` // "fit"; the reason why not; or empty before the first announcement
	// MissingAnnouncement is the reason for a missing announcement; empty if one has arrived, or the agent still waits.
	MissingAnnouncement agent.MissingReason `json:"announcement_missing,omitempty"`
	Rows                uint64              `json:"rows"`
	RowsNotMade         int                 `json:"rows_not_made"` // or not used, for lack of a value
	Inputs              []inputStatus       `json:"inputs,omitempty"`
	TrainingWait        *trainingWait       `json:"waits,omitempty"`   // while the device trains for another federation
	LastTraining        *trainingSummary    `json:"trained,omitempty"` // the last time
	RoundsByResult      map[string]int      `json:"results"`           // rounds, since the start
	UpdatesByFate       map[string]int      `json:"updates"`           // whose rounds are over, by what became of them
	RecentLosses        []float64           `json:"losses"`            // risk of the base model on the local data, of the newest rounds
	RecentRefusals      []status.Refusal    `json:"refusals"`
	Budget              *trafficBudget      `json:"budget,omitempty"`
	Model               *modelInUse         `json:"model,omitempty"` // that the device predicts with

	CertificateEndsAt *time.Time `json:"certificate_expires,omitempty"` // of the one for the broker
}

// inputStatus is what has come of an input, or of a column of a file.
type inputStatus struct {
	Name               string                 `json:"name"` // empty for payloads that cannot be read
	ReceivedValues     uint64                 `json:"came"`
	UsedValues         uint64                 `json:"used"`
	Newest             *time.Time             `json:"newest,omitempty"` // of the times of its values
	UnusedByReason     map[data.Reason]uint64 `json:"unused,omitempty"` // values, and rows, by the reason
	LastUnusedLocation string                 `json:"where,omitempty"`  // the last value was that was not used
	// LastUnusedProblem describes that value and its fault.
	LastUnusedProblem string `json:"problem,omitempty"`
}

// inputsOf are the first ones of a report: a file may have thousands of columns.
func inputsOf(r data.Report) []inputStatus {
	var all []inputStatus
	for _, c := range r.Columns[:min(len(r.Columns), spec.MaxInputs)] {
		in := inputStatus{Name: c.Name, ReceivedValues: c.ReceivedValues, UsedValues: c.Used, UnusedByReason: c.Unused,
			LastUnusedLocation: c.LastUnusedWhere,
			LastUnusedProblem:  c.Problem}
		if c.Newest != 0 {
			at := time.Unix(0, c.Newest).UTC()
			in.Newest = &at
		}
		all = append(all, in)
	}
	return all
}

// modelInUse is the model that the device predicts with.
type modelInUse struct {
	Run     uint64    `json:"run"`
	Version uint64    `json:"version"`
	Since   time.Time `json:"since"` // or since the start
	Pinned  bool      `json:"pinned"`
}

// roundWork is the agent's work in a round.
type roundWork struct {
	Round     uint64    `json:"round"`
	Kind      string    `json:"kind"`
	Since     time.Time `json:"since"`
	Deadline  time.Time `json:"until"` // the deadline
	StepsDone bool      `json:"done"`  // the local steps are done, and the update is being sent
}

// trainingWait is the wait of a federation for its turn to train.
type trainingWait struct {
	BusyFederation string    `json:"for"` // the federation that the device trains for
	Since          time.Time `json:"since"`
}

// trainingSummary describes the local steps of a round.
type trainingSummary struct {
	Round                 uint64   `json:"round"`
	LocalSteps            int      `json:"local_steps"`
	StepCountReason       string   `json:"because"`
	StepTime              float64  `json:"step_time"` // seconds
	TrainingSeconds       float64  `json:"took"`      // seconds
	WaitSeconds           float64  `json:"waited"`    // seconds, while the device trained for other federations
	RiskBefore            *float64 `json:"risk_before,omitempty"`
	RiskAfter             *float64 `json:"risk_after,omitempty"`
	AppliedNeighbourFlows uint64   `json:"flows,omitempty"` // of neighbours, applied
	LateNeighbourFlows    uint64   `json:"late,omitempty"`  // of these
}

// trafficBudget is the traffic of a month, against its limit.
type trafficBudget struct {
	Month     string `json:"month"`
	UsedBytes uint64 `json:"used"` // bytes
	Limit     uint64 `json:"limit"`
}

// View keeps an agent's picture up to date from its facts.
type View struct {
	now                 func() time.Time
	mu                  sync.Mutex // pictures are asked for from other goroutines
	current             agentStatus
	board               *status.Board
	problemBySubject    map[string]string // by subject
	missingAnnouncement agent.AnnouncementMissing
	rejectionReason     wire.RejectionReason
}

var _ observe.Observer = (*View)(nil)

// New returns the view of an agent that has just started.
func New(version, federation, id string, now func() time.Time, board *status.Board) *View {
	return &View{now: now, board: board, problemBySubject: map[string]string{}, current: agentStatus{
		Program: "agentd", Version: version, Federation: federation, ID: id, Started: now(),
		Broker:         status.Link{Since: now()},
		RoundsByResult: map[string]int{}, UpdatesByFate: map[string]int{}, RecentLosses: []float64{},
		RecentRefusals: []status.Refusal{},
	}}
}

// Status returns a copy of the present state.
func (v *View) Status() status.Drawable {
	v.mu.Lock()
	defer v.mu.Unlock()
	p := v.current
	p.GeneratedAt = v.now()
	p.RecentLosses, p.RecentRefusals = slices.Clone(p.RecentLosses), slices.Clone(p.RecentRefusals)
	p.RoundsByResult, p.UpdatesByFate = maps.Clone(v.current.RoundsByResult), maps.Clone(v.current.UpdatesByFate)
	for _, problem := range v.problemBySubject {
		p.Problems = append(p.Problems, problem)
	}
	slices.Sort(p.Problems)
	p.Conditions = v.board.Conditions()
	return &p
}

// TaskObstacles returns why the agent has no announcement (an empty reason = it has one, or the cause is not known
// yet), and why the coordinator ignores the agent's messages (0 = it does not).
func (v *View) TaskObstacles() (agent.AnnouncementMissing, wire.RejectionReason) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.missingAnnouncement, v.rejectionReason
}

// observeRound reads the events of the round machine.
func (v *View) observeRound(fact observe.Event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch f := fact.(type) {
	case round.AnnouncementObeyed:
		v.current.Round, v.current.Phase = uint64(f.Position.Round), f.Position.Phase.String()
		v.setProblem("protocol", "")
	case round.TaskPrepared:
		v.current.Rows, v.current.Fitness = f.Samples, "fit"
		if f.UnfitReason != 0 {
			v.current.Fitness = f.UnfitReason.String()
		}
	case round.WorkStarted:
		v.current.Work = &roundWork{Round: uint64(f.Round), Kind: f.Kind.String(), Since: v.now(),
			Deadline: v.now().Add(f.Left)}
	case round.WorkEnded:
		v.recordWorkEnd(f)
	case round.UplinkBudgetTooSmall:
		v.setProblem("budget", fmt.Sprintf("the rest of the month's bytes (%d) is too small for a round (%d)",
			f.BytesLeft,
			f.RoundBytes))
	case round.EdgeLost:
		v.setProblem("edge", fmt.Sprintf("the coordinator has ended the edge to %s for some rounds: %s", f.Neighbor,
			f.Reason))
	case round.MessageUnsupported:
		v.setProblem("version", fmt.Sprintf("the coordinator's %s: %v; update this agent", f.Message, f.Err))
	case round.AnnouncementIgnored: // not shown
	}
}

// Observe implements observe.Observer.
func (v *View) Observe(fact observe.Event) {
	v.observeRound(fact)
	v.mu.Lock()
	defer v.mu.Unlock()
	switch f := fact.(type) {
	case agent.UpdateSettled:
		v.current.UpdatesByFate[f.Fate.String()]++
	case agent.Trained:
		v.recordTraining(f)
	case agent.TrainingLockAwaited:
		v.setTrainingWait(f.LockHolder)
	case agent.TrainingFailed:
		v.current.RecentRefusals = status.AppendBounded(v.current.RecentRefusals, status.KeptRefusals,
			status.Refusal{At: v.now(),
				Round: uint64(f.Round),
				Kind:  "no update", Reason: f.Err.Error()})
	case host.LinkChanged:
		if f.ReconnectAt.IsZero() {
			v.current.Broker.SetConnected(v.now(), f.Up, f.Err)
		} else {
			v.current.Broker.SetPaused(v.now(), f.ReconnectAt)
		}
	case agent.StateLost:
		v.setProblem("file "+f.File, fmt.Sprintf("the file %s in the state folder could not be used: %s", f.File,
			f.Consequence))
	case agent.AnnouncementsStale:
		v.setProblemIf(f.StaleFor > 0, "stale", func() string { return StaleAnnouncementAdvice(f.StaleFor) })
	case agent.AnnouncementMissing:
		v.missingAnnouncement, v.current.MissingAnnouncement = f, f.Reason
	case agent.CertificateUsed:
		v.setCertificateExpiry(f.Until)
	case agent.CertificateEnding:
		v.setProblem("certificate", CertificateEndingAdvice(f))
	case agent.RenewalRefused:
		v.setProblem("renewal",
			"the coordinator gives this device no other key or certificate: "+agent.RenewRefusalText(f.Reason))
	case agent.Rekeyed:
		v.setProblem("renewal", "")
	case agent.ClockBehind:
		v.setProblemIf(!f.UsedTime.IsZero(), "clock", func() string { return ClockBehindAdvice(f) })
	case agent.BootRaised:
		v.setProblem("boot", fmt.Sprintf("the counter of starts was behind: it was raised from %d to %d", f.From, f.To))
	case agent.GroupKeyAwaited:
		v.setProblem("key", missingGroupKeyProblem)
	case agent.GroupKeyReceived:
		v.setProblem("key", "")
	case agent.DataLoaded:
		v.setProblemIf(f.Problem != nil, "data", func() string { return dataMisfitPrefix + f.Problem.Error() })
	case agent.DataCollected:
		v.updateInputs(f)
	case agent.CloneSeen:
		v.setProblem("clone",
			"another device has the identity of this agent: give one of them an id and a key of its own")
	case agent.MessagesRejected:
		v.rejectionReason = f.Reason
		v.setProblemIf(f.Reason != 0, "rejected", func() string { return RejectionAdvice(f.Reason) })
	case agent.BudgetUsed:
		v.updateBudget(f)
	case agent.ModelInUse:
		v.current.Model = &modelInUse{uint64(f.Run), uint64(f.Version), f.Since, f.Pinned}
	case agent.ModelJudged:
		v.setProblem("model", modelProblem(f))
	case agent.Predicted:
		v.updateModelInUse(f)
	case agent.ModelHookFailed:
		v.setProblem("hook", "predict.hook failed: "+f.Err.Error())
	case agent.ExternalTrainerStarted:
		v.setProblem("trainer "+f.ConfiguredName, "")
		v.setProblemIf(f.UnconfinedReason != "", "confined "+f.ConfiguredName,
			func() string { return UnconfinedTrainerWarning(f) })
	case agent.ExternalTrainerEnded:
		v.setProblem("trainer "+f.Trainer, fmt.Sprintf("trainer %s has ended, and is started again: %v", f.Trainer,
			f.Err))
	case agent.MessageDropped:
		v.recordDroppedMessage(f)
	case agent.BlockBegan, agent.DeviceRulesChecked, agent.Evaluated, agent.ErrorFeedbackKept, agent.ModelFetched,
		agent.NeighborsFound, agent.PersonalModelReset,
		agent.RootDocumentAdopted: // not shown
	}
}

// modelProblem says why a new model is not in use; empty if it is.
func modelProblem(f agent.ModelJudged) string {
	name := fmt.Sprintf("model %d/%d is not in use: ", f.Run, f.Version)
	switch f.Result {
	case agent.ModelWorse:
		return name + fmt.Sprintf("its risk on the %d held-out rows is %.4g, that of the present one is %.4g",
			f.HeldOutRows,
			f.Risk, f.RiskOfModelInUse)
	case agent.ModelNotFinite:
		return name + "it has numbers that are not finite"
	case agent.ModelUnjudged:
		return name + "the held-out rows to judge it on cannot be read now"
	case agent.ModelFailed:
		return name + f.Err.Error()
	case agent.ModelAdopted, agent.ModelOtherPinned:
	}
	return ""
}

// missingGroupKeyProblem says that what is announced cannot be opened.
const missingGroupKeyProblem = "the task or a model is sealed, and the coordinator has not given this device the " +
	"key yet: it is " +
	"asked for it"

const dataMisfitPrefix = "the local data do not fit the task: "

// setProblem sets the problem with a subject; an empty text removes it.
func (v *View) setProblem(about, text string) {
	if delete(v.problemBySubject, about); text != "" {
		v.problemBySubject[about] = text
	}
}

// setProblemIf sets the problem with a subject if there is one, and else removes it.
func (v *View) setProblemIf(is bool, about string, text func() string) {
	if delete(v.problemBySubject, about); is {
		v.problemBySubject[about] = text()
	}
}

// setTrainingWait takes note of the federation for which this one waits; empty if it waits for none.
func (v *View) setTrainingWait(by string) {
	if v.current.TrainingWait = nil; by != "" {
		v.current.TrainingWait = &trainingWait{by, v.now()}
	}
}

func (v *View) setCertificateExpiry(until time.Time) {
	v.current.CertificateEndsAt = &until
	v.setProblem("certificate", "")
}

func (v *View) updateInputs(f agent.DataCollected) {
	texts := make([]string, len(f.Troubles))
	for i, t := range f.Troubles {
		texts[i] = t.Text
	}
	v.setProblem("source", strings.Join(texts, "; "))
	v.current.RowsNotMade, v.current.Inputs = f.BadRows, inputsOf(f.Report)
}

func (v *View) updateBudget(f agent.BudgetUsed) {
	v.current.Budget = &trafficBudget{f.Month, f.Used, f.Limit}
	if f.Limit-min(f.Limit, f.Used) >= f.RoundEstimate {
		v.setProblem("budget", "")
	}
}

func (v *View) updateModelInUse(f agent.Predicted) {
	if f.Err != nil {
		v.setProblem("forecasts", "there are no forecasts: "+f.Err.Error())
	} else if f.ErrorResolved {
		v.setProblem("forecasts", "")
	}
}

func (v *View) recordDroppedMessage(f agent.MessageDropped) {
	if f.Kind == mqtt.KindRound && f.Reason == agent.DropVersion {
		v.setProblem("protocol", "the coordinator's announcements cannot be read: "+f.Err.Error())
	}
}

func (v *View) recordWorkEnd(f round.WorkEnded) {
	v.current.Work = nil
	v.current.RoundsByResult[string(f.Result)]++
	switch f.Result {
	case round.WorkRefused:
		v.current.RecentRefusals = status.AppendBounded(v.current.RecentRefusals, status.KeptRefusals,
			status.Refusal{At: v.now(), Round: uint64(f.Round), Kind: "refused", Reason: f.RefusalReason.String()})
	case round.WorkDeclined:
		v.current.RecentRefusals = status.AppendBounded(v.current.RecentRefusals, status.KeptRefusals,
			status.Refusal{At: v.now(), Round: uint64(f.Round), Kind: "declined", Reason: f.DeclineReason.String()})
	}
}

func (v *View) recordTraining(f agent.Trained) {
	v.current.LastTraining = &trainingSummary{
		Round: uint64(f.Round), LocalSteps: f.LocalSteps, StepCountReason: f.Sizing.String(),
		StepTime:        f.StepTime.Seconds(),
		TrainingSeconds: f.LocalStepsDuration.Seconds(), WaitSeconds: f.LockWait.Seconds(),
		RiskBefore: status.FiniteOrNil(f.RiskBefore), RiskAfter: status.FiniteOrNil(f.RiskAfter),
	}
	if f.MixingStats != nil {
		v.current.LastTraining.AppliedNeighbourFlows, v.current.LastTraining.LateNeighbourFlows = f.MixingStats.Flows,
			f.MixingStats.LateFlows
	}
	if v.current.Work != nil {
		done := *v.current.Work // pictures share the old one
		done.StepsDone = true
		v.current.Work = &done
	}
	if risk := status.FiniteOrNil(f.RiskBefore); risk != nil {
		v.current.RecentLosses = status.AppendBounded(v.current.RecentLosses, status.KeptLosses, *risk)
	}
}

// Route answers with the picture.
func (v *View) Route() api.Route {
	return api.GetRoute(status.Path, "What the agent does.", func(*http.Request) (*agentStatus, error) {
		return v.Status().(*agentStatus), nil
	})
}
