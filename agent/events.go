package agent

import (
	"fmt"
	"time"

	"github.com/fedmesh/fedmesh/agent/device"
	"github.com/fedmesh/fedmesh/d2d"
	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/wire"
)

// Metrics are the metrics of the agent's events.
var Metrics = []*observe.Metric{DroppedMessages}

// DroppedMessages counts the messages that the agent has not used.
var DroppedMessages = host.DroppedMessages(observe.Strings(DropReasons()))

// DropReason tells why an incoming message was not used. It is a metric's label.
type DropReason string

// The reasons for dropping a message.
const (
	DropMalformed    DropReason = "malformed"
	DropVersion      DropReason = "version"
	DropSignature    DropReason = "bad_signature"
	DropMisaddressed DropReason = "foreign"  // another federation, sender or topic
	DropUnwanted     DropReason = "unwanted" // nothing here waits for it
	DropUnsealFailed DropReason = "sealed"   // cannot be opened, is not sealed, or announces no valid key
	// DropOlderEpoch: the coordinator's epoch is lower than that of the announcement which the agent obeys.
	DropOlderEpoch DropReason = "older_epoch"
	// DropNewerRoot: the coordinator goes by a root document that has not come to the agent.
	DropNewerRoot DropReason = "newer_root"
	DropOverflow  DropReason = "overflow" // the mailbox was full: counted by the session, not a fact
)

// DropReasons returns all reasons, for closed label sets.
func DropReasons() []DropReason {
	return []DropReason{DropMalformed, DropVersion, DropSignature, DropMisaddressed, DropUnwanted, DropUnsealFailed,
		DropOlderEpoch, DropNewerRoot, DropOverflow}
}

// ModelResult is what became of a new model on the device. It is a metric's label.
type ModelResult string

// The results.
const (
	ModelAdopted     ModelResult = "taken"
	ModelWorse       ModelResult = "worse"      // than the one in use, by more than the margin
	ModelNotFinite   ModelResult = "not_finite" // its parameters, or its risk
	ModelUnjudged    ModelResult = "blind"      // there are no rows to judge it on now; it is tried again
	ModelFailed      ModelResult = "failed"     // the disk, say; it is tried again
	ModelOtherPinned ModelResult = "pinned"     // the device's owner wants another one: no fact
)

// ModelResults returns the results that are told, for closed label sets.
func ModelResults() []ModelResult {
	return []ModelResult{ModelAdopted, ModelWorse, ModelNotFinite, ModelUnjudged, ModelFailed}
}

// Events of the host.
type (
	// GroupKeyAwaited: the agent lacks the key under which tasks and models are sealed. It asks the coordinator.
	GroupKeyAwaited struct{}
	// GroupKeyReceived: it has that key.
	GroupKeyReceived struct{}
	// StateLost: a file of the state folder is damaged, or of another version, and
	// the agent goes on without it.
	StateLost struct {
		File        string // one of StateFiles
		Err         error
		Consequence string // what the agent does
	}
	// PersonalModelReset: what of the model is the agent's own begins anew, since it is not known for this run and
	// these tensors, or, with an error, since ditto's steps have diverged.
	PersonalModelReset struct {
		Round      wire.RoundID
		Parameters int
		Err        error
	}
	// BootRaised: an earlier start had a higher number than this one, which takes the next.
	BootRaised struct{ From, To wire.Epoch }
	// AnnouncementsStale: no later announcement has come for a time in which one was due; For is 0 when one has.
	AnnouncementsStale struct{ StaleFor time.Duration }
	// AnnouncementMissing: no valid announcement has arrived since the agent connected. Reason is empty when one has.
	AnnouncementMissing struct {
		Reason     MissingReason
		Federation wire.Federation
		// OtherFederations are the other federations whose announcements the broker retains. With
		// MissingOtherFederation it names only the federation that the configured key announces.
		OtherFederations []wire.Federation
	}
	// RootDocumentAdopted: the keys of this root document count now.
	RootDocumentAdopted struct{ Version wire.RootVersion }
	// ClockBehind: the machine's clock is behind the time by which certificates are held; Using is zero when it is so
	// no more.
	ClockBehind struct{ Machine, UsedTime time.Time }
	// CertificateUsed: the next connection to the broker uses this certificate; Renewed says that the coordinator has
	// made it in the place of another one.
	CertificateUsed struct {
		Until   time.Time
		Renewed bool
	}
	// CertificateEnding: the certificate has ended, or does so soon, and there is no other one yet. It is told again
	// and again.
	CertificateEnding struct {
		Until       time.Time
		TimeLeft    time.Duration
		LastRefusal wire.RenewalRefusal // by the coordinator, the last time; 0 = it has not answered
	}
	// RenewalRefused: the coordinator gives the device no other key or certificate.
	RenewalRefused struct{ Reason wire.RenewalRefusal }
	// Rekeyed: the coordinator has taken another key of this device, which is used from the next start on.
	Rekeyed struct{ Key wire.SigningPublicKey }
	// CloneSeen: another device has this agent's identity, and is alive.
	CloneSeen struct {
		Boot, OtherBoot   wire.Epoch
		Nonce, OtherNonce uint64
		Pause             time.Duration // for which this one leaves the broker; 0 = it goes on
	}
	// MessagesRejected: the coordinator ignores this agent's messages for this reason; 0 = it accepts them again.
	// That there is a clone lasts until the next start.
	MessagesRejected struct{ Reason wire.RejectionReason }
	// BudgetUsed: what the uplink has carried in this month.
	BudgetUsed struct {
		Month         string // such as 2026-03
		Used, Limit   uint64 // bytes
		RoundEstimate uint64 // of the round that is announced, or comes next
	}
	// DeviceRulesChecked: the rules for this device were held against what the system tells.
	DeviceRulesChecked struct {
		device.Verdict
		PreviousVerdict device.Verdict
	}
	// MessageDropped: an incoming message was not used.
	MessageDropped struct {
		Kind   mqtt.TopicKind
		Reason DropReason
		Err    error
	}
	// DataLoaded: the local data were held against a task, for the first time or because they have changed.
	DataLoaded struct {
		Task       string
		Rows       int
		RowsBefore int // rows that there were the last time that they fit; 0 at the first time
		// why rows that were there are so no more, with file and line; empty if rows were only added
		RenewalReason string
		Took          time.Duration
		Problem       error // nil when they fit
	}
	// DataCollected: what has come of the data, what was not used and why, and what keeps more from coming.
	DataCollected struct {
		data.Report
		Before data.Report // at the fact before
	}
	// ModelFetched: a base model is here.
	ModelFetched struct {
		Version wire.ModelVersion
		Bytes   int
	}
	// Trained: local steps were taken.
	Trained struct {
		Round              wire.RoundID
		Version            wire.ModelVersion // of the base model
		LocalSteps         int
		Sizing             learner.StepCountReason
		StepTime           time.Duration // per local step, as measured or declared
		RiskBefore         float64
		RiskAfter          float64
		HeldOutScore       *learner.Score // of the base model on the rows that are held out; nil if none are
		LocalStepsDuration time.Duration  // in local steps
		LockWait           time.Duration  // for its turn, while the device trained for other federations
		// MixingStats is how the mixing went, where agents mix, and MixedFor how long
		// the block took with it.
		MixingStats *d2d.MixingStats
		MixedFor    time.Duration
	}
	// TrainingLockAwaited: training waits, since the device trains for another of its federations. By is empty when the
	// wait, of the time Waited, is over. Waits that take less than 100 ms are not told.
	TrainingLockAwaited struct {
		LockHolder string
		Waited     time.Duration
	}
	// ModelJudged: a new model was held against the one in use.
	ModelJudged struct {
		Run              wire.RunID
		Version          wire.ModelVersion
		Result           ModelResult
		HeldOutRows      int     // that are held out, on which it was judged, task.RiskRows at most; 0 = it was not
		Risk             float64 // on them; NaN if it was not judged
		RiskOfModelInUse float64 // that of the model in use; NaN if there is none to compare with
		Err              error   // of ModelFailed
	}
	// ModelInUse: the device predicts with another model from now on.
	ModelInUse struct {
		Run     wire.RunID
		Version wire.ModelVersion
		Task    string
		Since   time.Time // when its file was put into place: also before this start
		Pinned  bool      // by the device's owner
	}
	// Predicted: the device has predicted from its own rows, or could not.
	Predicted struct {
		NewForecasts       int // forecasts that were made
		PublishedForecasts int // forecasts that were published: also some that waited until the connection had room
		LostForecasts      int // that could not be
		FailedRows         int // rows without one: it would not be finite, or the label is no class
		Anomalies          int
		Residual           float64       // mean magnitude of the last residuals; NaN if no label has come
		Took               time.Duration // to find and to predict those that were made
		Err                error         // told when it is another than before, or forecasts are lost
		ErrorResolved      bool          // there was an error before, and is none
	}
	// ModelHookFailed: the command that is told of a new model has failed. The model is in use nevertheless.
	ModelHookFailed struct{ Err error }
	// UpdateSettled: the coordinator has told what became of an update of a round that is over.
	UpdateSettled struct {
		Round wire.RoundID
		Fate  wire.UpdateFate
	}
	// Evaluated: a base model was evaluated on the rows that are held out, as the coordinator asks for.
	Evaluated struct {
		Version wire.ModelVersion
		Rows    int     // that are told; 0 = its risk is too large to be told
		Risk    float64 // mean, without the ridge
		Err     error   // rows that could not be read: nothing is told
	}
	// ErrorFeedbackKept: what the codec has not sent of the updates up to this round's, and goes with the next one.
	ErrorFeedbackKept struct {
		Round        wire.RoundID
		Norm         float64 // ‖e‖₂
		ResidualLost bool    // it is 0: nobody knows what became of the last update, or that was of another run
	}
	// NeighborsFound: whom the agent would mix with, of those in its cell.
	NeighborsFound struct {
		Neighbors   []wire.AgentID
		OtherAgents int // agents that are there, in the cell
	}
	// BlockBegan: the agent mixes from now on, over all rounds until its edges change.
	BlockBegan struct {
		Block     wire.RoundID // for which its edges were made
		Origin    BlockSource
		Neighbors int
	}
	// ExternalTrainerStarted: a program that trains external models runs, and has said what it has.
	ExternalTrainerStarted struct {
		ConfiguredName   string // as the device's owner calls it
		Name             string // as it calls itself
		Rows             int
		UnconfinedReason string // why it is not confined; empty if it is
	}
	// ExternalTrainerEnded: it runs no more, though it is needed.
	ExternalTrainerEnded struct {
		Trainer      string
		Err          error
		RestartDelay time.Duration // after which it is started again at the earliest
	}
	// TrainingFailed: there is no update for this round.
	TrainingFailed struct {
		Round wire.RoundID
		Err   error
	}
)

func (GroupKeyAwaited) Describe(*observe.Description)        {}
func (GroupKeyReceived) Describe(*observe.Description)       {}
func (StateLost) Describe(*observe.Description)              {}
func (BootRaised) Describe(*observe.Description)             {}
func (PersonalModelReset) Describe(*observe.Description)     {}
func (AnnouncementsStale) Describe(*observe.Description)     {}
func (RootDocumentAdopted) Describe(*observe.Description)    {}
func (ClockBehind) Describe(*observe.Description)            {}
func (CertificateUsed) Describe(*observe.Description)        {}
func (CertificateEnding) Describe(*observe.Description)      {}
func (RenewalRefused) Describe(*observe.Description)         {}
func (Rekeyed) Describe(*observe.Description)                {}
func (MessagesRejected) Describe(*observe.Description)       {}
func (BudgetUsed) Describe(*observe.Description)             {}
func (DeviceRulesChecked) Describe(*observe.Description)     {}
func (DataLoaded) Describe(*observe.Description)             {}
func (DataCollected) Describe(*observe.Description)          {}
func (ModelFetched) Describe(*observe.Description)           {}
func (Trained) Describe(*observe.Description)                {}
func (TrainingLockAwaited) Describe(*observe.Description)    {}
func (ModelJudged) Describe(*observe.Description)            {}
func (ModelInUse) Describe(*observe.Description)             {}
func (ModelHookFailed) Describe(*observe.Description)        {}
func (Predicted) Describe(*observe.Description)              {}
func (UpdateSettled) Describe(*observe.Description)          {}
func (ErrorFeedbackKept) Describe(*observe.Description)      {}
func (Evaluated) Describe(*observe.Description)              {}
func (NeighborsFound) Describe(*observe.Description)         {}
func (BlockBegan) Describe(*observe.Description)             {}
func (ExternalTrainerStarted) Describe(*observe.Description) {}
func (ExternalTrainerEnded) Describe(*observe.Description)   {}
func (TrainingFailed) Describe(*observe.Description)         {}

// Describe implements observe.Event.
func (CloneSeen) Describe(d *observe.Description) {
	d.Inc(host.ClonesSeen)
}

// Describe implements observe.Event.
func (e MessageDropped) Describe(d *observe.Description) {
	d.Inc(DroppedMessages, host.Received, string(e.Reason))
	d.Log(observe.Warn, "message dropped", "kind", e.Kind, "reason", e.Reason, "err", e.Err)
}

// Describe implements observe.Event.
func (e AnnouncementMissing) Describe(d *observe.Description) {
	const name = "announcement"
	if e.Reason == "" {
		d.Log(observe.Info, "announcement received")
		d.Resolve(name)
		d.Show(observe.Activity, "")
		return
	}
	d.Show(observe.Activity, fmt.Sprintf("no task: %s", e.Reason))
	switch e.Reason {
	case MissingAccessDenied: // host.BrokerTested says what to change
		d.FailReadiness(name, e.Problem(), e.Remedy())
	case MissingNotRetained: // an agent that waits for its coordinator's first start is ready
		d.Log(observe.Warn, "no announcement", "reason", e.Reason, "other_federations", e.OtherFederations,
			"remedy", e.Remedy())
		d.Fail(name, e.Problem(), e.Remedy())
	case MissingUntrustedKey, MissingOtherFederation:
		d.Log(observe.Error, "no announcement", "reason", e.Reason, "other_federations", e.OtherFederations,
			"remedy", e.Remedy())
		d.FailReadiness(name, e.Problem(), e.Remedy())
	}
}
