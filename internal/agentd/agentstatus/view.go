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
	"github.com/fedmesh/fedmesh/internal/api"
	"github.com/fedmesh/fedmesh/internal/status"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// agentPicture is the state of an agent, as agentd status shows it.
type agentPicture struct {
	Program    string      `json:"program"`
	Version    string      `json:"version"`
	Federation string      `json:"federation"`
	ID         string      `json:"id"`
	At         time.Time   `json:"at"` // of the picture
	Started    time.Time   `json:"started"`
	Broker     status.Link `json:"broker"`
	Problems   []string    `json:"problems,omitempty"`

	Round uint64 `json:"round"` // of the announcement that is obeyed
	Phase string `json:"phase"` // of that announcement: gathering, open, idle or finished; empty without one
	Work  *work  `json:"work,omitempty"`
	Fit   string `json:"fit"` // "fit"; the reason why not; or empty before the first announcement
	// Missing is the reason for a missing announcement; empty if one has arrived, or the agent still waits.
	Missing agent.MissingReason `json:"announcement_missing,omitempty"`
	Rows    uint64              `json:"rows"`
	Lacking int                 `json:"rows_not_made"` // or not used, for lack of a value
	Inputs  []input             `json:"inputs,omitempty"`
	Waits   *turnWait           `json:"waits,omitempty"`   // while the device trains for another federation
	Trained *trained            `json:"trained,omitempty"` // the last time
	Results map[string]int      `json:"results"`           // rounds, since the start
	Updates map[string]int      `json:"updates"`           // whose rounds are over, by what became of them
	Losses  []float64           `json:"losses"`            // risk of the base model on the local data, of the newest rounds
	Recent  []status.Refusal    `json:"refusals"`
	Budget  *budget             `json:"budget,omitempty"`
	Model   *modelInUse         `json:"model,omitempty"` // that the device predicts with

	Certificate *time.Time `json:"certificate_expires,omitempty"` // of the one for the broker
}

// input is what has come of an input, or of a column of a file.
type input struct {
	Name   string                 `json:"name"` // empty for payloads that cannot be read
	Came   uint64                 `json:"came"`
	Used   uint64                 `json:"used"`
	Newest *time.Time             `json:"newest,omitempty"` // of the times of its values
	Unused map[data.Reason]uint64 `json:"unused,omitempty"` // values, and rows, by the reason
	Where  string                 `json:"where,omitempty"`  // the last value was that was not used
	// Problem describes that value and its fault.
	Problem string `json:"problem,omitempty"`
}

// inputsOf are the first ones of a report: a file may have thousands of columns.
func inputsOf(r data.Report) []input {
	var all []input
	for _, c := range r.Columns[:min(len(r.Columns), spec.MaxInputs)] {
		in := input{Name: c.Name, Came: c.Came, Used: c.Used, Unused: c.Unused, Where: c.Where, Problem: c.Problem}
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

// work is the agent's work in a round.
type work struct {
	Round uint64    `json:"round"`
	Kind  string    `json:"kind"`
	Since time.Time `json:"since"`
	Until time.Time `json:"until"` // the deadline
	Done  bool      `json:"done"`  // the local steps are done, and the update is being sent
}

// turnWait is the wait of a federation for its turn to train.
type turnWait struct {
	For   string    `json:"for"` // the federation that the device trains for
	Since time.Time `json:"since"`
}

// trained describes the local steps of a round.
type trained struct {
	Round      uint64   `json:"round"`
	LocalSteps int      `json:"local_steps"`
	Because    string   `json:"because"`
	StepTime   float64  `json:"step_time"` // seconds
	Took       float64  `json:"took"`      // seconds
	Waited     float64  `json:"waited"`    // seconds, while the device trained for other federations
	RiskBefore *float64 `json:"risk_before,omitempty"`
	RiskAfter  *float64 `json:"risk_after,omitempty"`
	Flows      uint64   `json:"flows,omitempty"` // of neighbours, applied
	Late       uint64   `json:"late,omitempty"`  // of these
}

// budget is the traffic of a month, against its limit.
type budget struct {
	Month string `json:"month"`
	Used  uint64 `json:"used"` // bytes
	Limit uint64 `json:"limit"`
}

// View keeps an agent's picture up to date from its facts.
type View struct {
	now      func() time.Time
	mu       sync.Mutex // pictures are asked for from other goroutines
	is       agentPicture
	problems map[string]string // by subject
	missing  agent.AnnouncementMissing
	rejected wire.RejectionReason
}

var _ agent.Observer = (*View)(nil)

// New returns the view of an agent that has just started.
func New(version, federation, id string, now func() time.Time) *View {
	return &View{now: now, problems: map[string]string{}, is: agentPicture{
		Program: "agentd", Version: version, Federation: federation, ID: id, Started: now(),
		Broker:  status.Link{Since: now()},
		Results: map[string]int{}, Updates: map[string]int{}, Losses: []float64{}, Recent: []status.Refusal{},
	}}
}

// Picture returns a copy of the present state.
func (v *View) Picture() status.Picture {
	v.mu.Lock()
	defer v.mu.Unlock()
	p := v.is
	p.At = v.now()
	p.Losses, p.Recent = slices.Clone(p.Losses), slices.Clone(p.Recent)
	p.Results, p.Updates = maps.Clone(v.is.Results), maps.Clone(v.is.Updates)
	for _, problem := range v.problems {
		p.Problems = append(p.Problems, problem)
	}
	slices.Sort(p.Problems)
	return &p
}

// Obstacles returns why the agent has no announcement (an empty reason = it has one, or the cause is not known yet),
// and why the coordinator ignores the agent's messages (0 = it does not).
func (v *View) Obstacles() (agent.AnnouncementMissing, wire.RejectionReason) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.missing, v.rejected
}

// ObserveRound implements agent.Observer.
func (v *View) ObserveRound(fact round.AgentFact) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch f := fact.(type) {
	case round.AnnouncementObeyed:
		v.is.Round, v.is.Phase = uint64(f.Order.Round), f.Order.Phase.String()
		v.note("protocol", "")
	case round.TaskPrepared:
		v.is.Rows, v.is.Fit = f.Samples, "fit"
		if f.Unfit != 0 {
			v.is.Fit = f.Unfit.String()
		}
	case round.WorkStarted:
		v.is.Work = &work{Round: uint64(f.Round), Kind: f.Kind.String(), Since: v.now(), Until: v.now().Add(f.Left)}
	case round.WorkEnded:
		v.ended(f)
	case round.BudgetShort:
		v.note("budget", fmt.Sprintf("the rest of the month's bytes (%d) is too small for a round (%d)", f.Left,
			f.Bytes))
	case round.EdgeLost:
		v.note("edge", fmt.Sprintf("the coordinator has ended the edge to %s for some rounds: %s", f.Neighbor,
			f.Reason))
	case round.NotUnderstood:
		v.note("version", fmt.Sprintf("the coordinator's %s: %v; update this agent", f.Message, f.Err))
	case round.AnnouncementIgnored: // not shown
	}
}

// Observe implements agent.Observer.
func (v *View) Observe(fact agent.Fact) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch f := fact.(type) {
	case agent.UpdateSettled:
		v.is.Updates[f.Fate.String()]++
	case agent.Trained:
		v.trained(f)
	case agent.TurnAwaited:
		v.waits(f.By)
	case agent.TrainingFailed:
		v.is.Recent = status.Keep(v.is.Recent, status.KeptRefusals, status.Refusal{At: v.now(), Round: uint64(f.Round),
			What: "no update", Reason: f.Err.Error()})
	case agent.LinkChanged:
		if f.Back.IsZero() {
			v.is.Broker.Change(v.now(), f.Up, f.Err)
		} else {
			v.is.Broker.Leave(v.now(), f.Back)
		}
	case agent.SubscriptionsRefused:
		v.note("refused", status.RefusedProblem(slices.Concat(f.Filters, f.Site)))
	case agent.BrokerTested:
		v.note("broker", f.Advice())
	case agent.StorageFailing:
		v.note("storage", status.StorageProblem(v.now(), f.What, f.Err))
	case agent.StateLost:
		v.note("file "+f.File, fmt.Sprintf("the file %s in the state folder could not be used: %s", f.File, f.Without))
	case agent.AnnouncementsStale:
		v.noteIf(f.For > 0, "stale", func() string { return Stale(f.For) })
	case agent.AnnouncementMissing:
		v.missing, v.is.Missing = f, f.Reason // the problem of a denied test of the broker says the same
		v.noteIf(f.Reason != "" && f.Reason != agent.MissingAccess, "missing", f.Advice)
	case agent.CertificateUsed:
		v.certified(f.Until)
	case agent.CertificateEnding:
		v.note("certificate", Ending(f))
	case agent.RenewalRefused:
		v.note("renewal", "the coordinator gives this device no other key or certificate: "+agent.Refusal(f.Reason))
	case agent.Rekeyed:
		v.note("renewal", "")
	case agent.ClockBehind:
		v.noteIf(!f.Using.IsZero(), "clock", func() string { return Behind(f) })
	case agent.BootRaised:
		v.note("boot", fmt.Sprintf("the counter of starts was behind: it was raised from %d to %d", f.From, f.To))
	case agent.KeyAwaited:
		v.note("key", keyless)
	case agent.KeyCame:
		v.note("key", "")
	case agent.StorageMended:
		v.note("storage", "")
	case agent.DataLoaded:
		v.noteIf(f.Problem != nil, "data", func() string { return misfits + f.Problem.Error() })
	case agent.DataCollected:
		v.collected(f)
	case agent.CloneSeen:
		v.note("clone", "another device has the identity of this agent: give one of them an id and a key of its own")
	case agent.Rejected:
		v.rejected = f.Reason
		v.noteIf(f.Reason != 0, "rejected", func() string { return RejectionAdvice(f.Reason) })
	case agent.BudgetUsed:
		v.spent(f)
	case agent.ModelInUse:
		v.is.Model = &modelInUse{uint64(f.Run), uint64(f.Version), f.Since, f.Pinned}
	case agent.ModelJudged:
		v.note("model", modelProblem(f))
	case agent.Predicted:
		v.predicted(f)
	case agent.ModelHookFailed:
		v.note("hook", "predict.hook failed: "+f.Err.Error())
	case agent.TrainerStarted:
		v.note("trainer "+f.Trainer, "")
		v.noteIf(f.Loose != "", "confined "+f.Trainer, func() string { return NotConfined(f) })
	case agent.TrainerEnded:
		v.note("trainer "+f.Trainer, fmt.Sprintf("trainer %s has ended, and is started again: %v", f.Trainer, f.Err))
	case agent.MessageDropped:
		v.dropped(f)
	case agent.BlockBegan, agent.DeviceJudged, agent.Evaluated, agent.FeedbackKept, agent.ModelFetched,
		agent.NeighborsFound, agent.PersonalBegun,
		agent.RootTaken: // not shown
	}
}

// modelProblem says why a new model is not in use; empty if it is.
func modelProblem(f agent.ModelJudged) string {
	name := fmt.Sprintf("model %d/%d is not in use: ", f.Run, f.Version)
	switch f.Result {
	case agent.ModelWorse:
		return name + fmt.Sprintf("its risk on the %d held-out rows is %.4g, that of the present one is %.4g", f.Rows,
			f.Risk, f.InUse)
	case agent.ModelNotFinite:
		return name + "it has numbers that are not finite"
	case agent.ModelBlind:
		return name + "the held-out rows to judge it on cannot be read now"
	case agent.ModelFailed:
		return name + f.Err.Error()
	case agent.ModelTaken, agent.ModelPinned:
	}
	return ""
}

// keyless says that what is announced cannot be opened.
const keyless = "the task or a model is sealed, and the coordinator has not given this device the key yet: it is " +
	"asked for it"

const misfits = "the local data do not fit the task: "

// note sets the problem with a subject; an empty text removes it.
func (v *View) note(about, text string) {
	if delete(v.problems, about); text != "" {
		v.problems[about] = text
	}
}

// noteIf sets the problem with a subject if there is one, and else removes it.
func (v *View) noteIf(is bool, about string, text func() string) {
	if delete(v.problems, about); is {
		v.problems[about] = text()
	}
}

// waits takes note of the federation for which this one waits; empty if it waits for none.
func (v *View) waits(by string) {
	if v.is.Waits = nil; by != "" {
		v.is.Waits = &turnWait{by, v.now()}
	}
}

func (v *View) certified(until time.Time) {
	v.is.Certificate = &until
	v.note("certificate", "")
}

func (v *View) collected(f agent.DataCollected) {
	texts := make([]string, len(f.Troubles))
	for i, t := range f.Troubles {
		texts[i] = t.Text
	}
	v.note("source", strings.Join(texts, "; "))
	v.is.Lacking, v.is.Inputs = f.Bad, inputsOf(f.Report)
}

func (v *View) spent(f agent.BudgetUsed) {
	v.is.Budget = &budget{f.Month, f.Used, f.Limit}
	if f.Limit-min(f.Limit, f.Used) >= f.Estimate {
		v.note("budget", "")
	}
}

func (v *View) predicted(f agent.Predicted) {
	if f.Err != nil {
		v.note("forecasts", "there are no forecasts: "+f.Err.Error())
	} else if f.Mended {
		v.note("forecasts", "")
	}
}

func (v *View) dropped(f agent.MessageDropped) {
	if f.Kind == mqtt.KindRound && f.Reason == agent.DropVersion {
		v.note("protocol", "the coordinator's announcements cannot be read: "+f.Err.Error())
	}
}

func (v *View) ended(f round.WorkEnded) {
	v.is.Work = nil
	v.is.Results[string(f.Result)]++
	switch f.Result {
	case round.WorkRefused:
		v.is.Recent = status.Keep(v.is.Recent, status.KeptRefusals,
			status.Refusal{At: v.now(), Round: uint64(f.Round), What: "refused", Reason: f.Refused.String()})
	case round.WorkDeclined:
		v.is.Recent = status.Keep(v.is.Recent, status.KeptRefusals,
			status.Refusal{At: v.now(), Round: uint64(f.Round), What: "declined", Reason: f.Declined.String()})
	}
}

func (v *View) trained(f agent.Trained) {
	v.is.Trained = &trained{
		Round: uint64(f.Round), LocalSteps: f.LocalSteps, Because: f.Sizing.String(), StepTime: f.StepTime.Seconds(),
		Took: f.Took.Seconds(), Waited: f.Waited.Seconds(),
		RiskBefore: status.Number(f.RiskBefore), RiskAfter: status.Number(f.RiskAfter),
	}
	if f.Mixed != nil {
		v.is.Trained.Flows, v.is.Trained.Late = f.Mixed.Flows, f.Mixed.Late
	}
	if v.is.Work != nil {
		done := *v.is.Work // pictures share the old one
		done.Done = true
		v.is.Work = &done
	}
	if risk := status.Number(f.RiskBefore); risk != nil {
		v.is.Losses = status.Keep(v.is.Losses, status.KeptLosses, *risk)
	}
}

// Route answers with the picture.
func (v *View) Route() api.Route {
	return api.Get(status.Path, "What the agent does.", func(*http.Request) (*agentPicture, error) {
		return v.Picture().(*agentPicture), nil
	})
}
