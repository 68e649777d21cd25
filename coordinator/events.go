package coordinator

import (
	"time"

	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round/evaluation"
	"github.com/fedmesh/fedmesh/wire"
)

// Metrics are the metrics of the coordinator's events.
var Metrics = []*observe.Metric{DroppedMessages}

// DroppedMessages counts the messages that the coordinator has not used.
var DroppedMessages = host.DroppedMessages(observe.Strings(DropReasons()))

// DropReason tells why an incoming message was not used. It is a metric's label.
type DropReason string

// The reasons for dropping a message.
const (
	DropMalformed DropReason = "malformed"
	DropVersion   DropReason = "version"
	DropSignature DropReason = "bad_signature"
	DropForeign   DropReason = "foreign" // another federation, or a topic that is not the sender's
	DropUnknown   DropReason = "unknown_agent"
	DropReplayed  DropReason = "replayed"    // not newer than what came before from this agent
	DropOutdated  DropReason = "outdated"    // a hello that names an announcement of long ago
	DropLater     DropReason = "later_place" // about a round that this coordinator has not come to
	DropSealed    DropReason = "sealed"      // cannot be opened, or is not sealed
	// DropOverflow: the mailbox was full, which the session counts; or too much waits until it is clear that no other
	// coordinator leads; or a device asks for another key or certificate too often.
	DropOverflow DropReason = "overflow"
)

// DropReasons returns all reasons, for closed label sets.
func DropReasons() []DropReason {
	return []DropReason{DropMalformed, DropVersion, DropSignature, DropForeign, DropUnknown, DropReplayed, DropOutdated,
		DropLater, DropSealed, DropOverflow}
}

// LeaveOutReason tells why a fold with all updates was not taken. It is a metric's label.
type LeaveOutReason string

// The reasons for leaving an update out.
const (
	LeftOutNotFinite LeaveOutReason = "not_finite" // the model would not have been finite
	// LeftOutRisk: the model's risk on held-out data would have been over 10 times the worst of the last 20 rounds.
	LeftOutRisk LeaveOutReason = "risk"
	// LeftOutNorm: the update outweighs all others together, and the model is no worse without it.
	LeftOutNorm LeaveOutReason = "norm"
	// LeftOutAbove: it is longer than round.aggregation.refuse_above allows.
	LeftOutAbove LeaveOutReason = "refuse_above"
	// LeftOutRule: round.aggregation.rule has chosen others, as it does in each round. See UpdatesExcludedByRule.
	LeftOutRule LeaveOutReason = "rule"
)

// LeaveOutReasons returns all reasons, for closed label sets.
func LeaveOutReasons() []LeaveOutReason {
	return []LeaveOutReason{LeftOutNotFinite, LeftOutRisk, LeftOutNorm, LeftOutAbove, LeftOutRule}
}

// ClipReason tells which bound a part of an update is above. It is a metric's label.
type ClipReason string

// The bounds, by their keys in round.aggregation.
const (
	ClippedNorm   ClipReason = "clip"
	ClippedAbove  ClipReason = "clip_above"
	ClippedRadius ClipReason = "radius" // its distance from the last aggregate is
)

// ClipReasons returns all reasons, for closed label sets.
func ClipReasons() []ClipReason { return []ClipReason{ClippedNorm, ClippedAbove, ClippedRadius} }

// StateFile names what is kept in the state folder. It is a metric's label.
type StateFile string

// The files that can be mended when the coordinator starts.
const (
	StateTask  StateFile = "task"
	StateModel StateFile = "model"
)

// StateFiles returns all of them, for closed label sets.
func StateFiles() []StateFile { return []StateFile{StateTask, StateModel} }

// Events of the host.
type (
	// StateFileRecovered: a file of the state folder was damaged or missing at the start. Its content was recovered, or
	// the run goes on from an older model: then Version is below Before, and what was made since is trained again.
	StateFileRecovered struct {
		File                     StateFile
		Damage                   error
		MovedTo                  string // where the damaged file is now; empty if there was none
		PreviousVersion, Version wire.ModelVersion
	}
	// ModelsNewerThanJournal: at the start there are models that are newer than the journal, which was put back from a
	// backup. They stay; as the run comes to their versions they are renamed.
	ModelsNewerThanJournal struct{ JournalVersion, Newest wire.ModelVersion }
	// AgentListChanged: how many may take part, and which of those that were heard no longer may, in id order, or are
	// other devices now. Told at the start, and when another list takes effect.
	AgentListChanged struct {
		ListedAgents  int
		RemovedAgents []wire.AgentID
	}
	// CloneSeen: two devices speak as one agent. Told once an hour for each.
	CloneSeen struct {
		Agent      wire.AgentID
		BootEpochs [2]wire.Epoch
		Nonces     [2]uint64
	}
	// MachineStarted: nothing at the broker speaks against this coordinator, so its machine starts. With a raised epoch
	// agents obey it whatever they have obeyed before.
	MachineStarted struct {
		Epoch       wire.Epoch
		EpochRaised bool // at this start
		// the names of round.aggregation.rule and round.server_optimizer
		AggregationRule, ServerOptimizer string
	}
	// ForeignAnnouncementSeen: an announcement signed with this coordinator's key was published, which it has not made
	// and which is not later than its own. Another coordinator runs with the key, or somebody replays an old message.
	ForeignAnnouncementSeen struct{ Foreign, Own wire.AnnouncementPosition }
	// ForeignMessagesDeleted: messages were deleted that the broker retained, and that are not of the protocol: on
	// topics of these agents, in id order, at most 8 of them.
	ForeignMessagesDeleted struct {
		DeletedTopics int
		ExampleTopic  string
		Agents        []wire.AgentID
	}
	// AgentsAhead: agents obey a later place than this coordinator's, and not this coordinator.
	AgentsAhead struct {
		Agents      int
		NewestRun   wire.RunID // the newest place among them
		NewestRound wire.RoundID
	}
	// RetainedBlobChecked: the broker was asked for a blob that was published for the
	// agents to fetch. Until nothing is missing it is not announced.
	RetainedBlobChecked struct {
		Blob           wire.Digest
		Parts, Missing int           // the manifest and the chunks
		ReadRefused    bool          // the broker does not let the coordinator read them
		CheckDuration  time.Duration // to read it back, or to give up
		RepublishDelay time.Duration // until it is published again
	}
	// MessageDropped: an incoming message was not used.
	MessageDropped struct {
		Kind   mqtt.TopicKind
		Agent  wire.AgentID // as the topic says; may be empty
		Reason DropReason
		Err    error
	}
	// MessageAccepted: an agent has sent a message that it has signed, and that is newer than those before it.
	MessageAccepted struct {
		Agent       wire.AgentID
		RootVersion wire.RootVersion // the version of the root document that it goes by
		Presence    *wire.Presence   // nil if it is another message
		Retained    bool             // the broker has kept it: the agent may have gone since
	}
	// AgentRejected: a device was told that its messages are ignored. Another one may have sent them: it has not
	// been heard.
	AgentRejected struct {
		Agent  wire.AgentID
		Reason wire.RejectionReason
	}
	// AgentReportReceived: an agent told how it is doing.
	AgentReportReceived struct {
		Agent  wire.AgentID
		Boot   wire.Epoch // its counts began with
		Report wire.AgentReport
	}
	// StatisticsReady: the statistics round gave the task its standardisation.
	StatisticsReady struct {
		Rows              float64
		Columns           int
		DistantDataAgents []DistantDataAgent // whose data lie far from the others'
		// ConstantColumns are the columns that are the same number in all rows of all devices. They are not scaled.
		ConstantColumns []string
	}
	// ModelReady: a new model is on disk.
	ModelReady struct {
		Round            wire.RoundID
		Version          wire.ModelVersion
		Hash             wire.Digest
		Bytes            int
		MeanReportedRisk float64        // mean of the participants' risks at the base model, NaN when unknown
		MedianRisk       float64        // of these risks
		HeldOutScore     *learner.Score // on the evaluation data; nil without any
		UpdateSpread     float64        // of the updates in it around their mean, as a Euclidean distance
		// Euclidean norm of the fold of the updates; NaN if an earlier model was taken,
		AggregateNorm       float64
		ModelStepNorm       float64 // and of the model's step that the server's optimiser has made of it
		AggregationDuration time.Duration
	}
	// ModelEvaluated: agents have said how a model does on the rows that they hold out.
	ModelEvaluated struct {
		Version          wire.ModelVersion
		RespondingAgents int // agents, also those with fewer rows than they are to speak of
		PresentAgents    int
		TooFewAgents     bool // fewer than round.evaluation.min_agents were heard: there is no result
		Result           evaluation.Result
	}
	// UpdateLeftOut: the model of a round was made without an accepted update, or could not be made at all.
	UpdateLeftOut struct {
		Round  wire.RoundID
		Agent  wire.AgentID
		Reason LeaveOutReason
		// of the update, and of updates usually (round.UsualLength), for the weight that their steps carried
		Norm, UsualNorm float64
	}
	// RepeatedLargeUpdates: the last updates of an agent were all more than 3 times as long as usual. The device has
	// unusual data or is dishonest. The fact is reported at each fold from the third such update on. Times is 0 when
	// the agent's update is as long as usual again.
	RepeatedLargeUpdates struct {
		Round              wire.RoundID
		Agent              wire.AgentID
		ConsecutiveUpdates int               // consecutive long updates
		SinceVersion       wire.ModelVersion // the model before the first of them
		Norm, UsualNorm    float64           // for the weight that the agent's steps carried
		CountedNorm        float64           // the length with which the update is in the model; 0 = it was left out
	}
	// ModelRejected: the participants report that a model has diverged. The run continues from an earlier one, and the
	// agents that are held responsible sit out.
	ModelRejected struct {
		Round              wire.RoundID
		Version            wire.ModelVersion
		EarlierVersion     wire.ModelVersion // the model that the run returns to,
		NextVersion        wire.ModelVersion // and its new version
		MedianReportedRisk float64           // median of the reported risks; 0 if fewer than 3 agents reported one
		Agents             []wire.AgentID
	}
	// UpdatesExcludedByRule: the rule has made the model of a round of other updates, as it is made to.
	UpdatesExcludedByRule struct {
		Round  wire.RoundID
		Rule   string
		Agents []wire.AgentID
	}
	// UpdatesClipped: updates are in the model of a round as if they were no longer than Most.
	UpdatesClipped struct {
		Round  wire.RoundID
		Reason ClipReason
		Agents []wire.AgentID
		// The longest of them, and what is counted of one, for the weight that their steps carried: of the bound radius
		// the largest distance from the last aggregate, and what is counted of that.
		LongestNorm, MaxNorm float64
	}
	// UploadStatusChanged: where the uploads stand.
	UploadStatusChanged struct{ Receiving, Queued, BufferedBytes int }
)

func (StateFileRecovered) Describe(*observe.Description)      {}
func (ModelsNewerThanJournal) Describe(*observe.Description)  {}
func (AgentListChanged) Describe(*observe.Description)        {}
func (MachineStarted) Describe(*observe.Description)          {}
func (ForeignAnnouncementSeen) Describe(*observe.Description) {}
func (ForeignMessagesDeleted) Describe(*observe.Description)  {}
func (AgentsAhead) Describe(*observe.Description)             {}
func (RetainedBlobChecked) Describe(*observe.Description)     {}
func (ModelEvaluated) Describe(*observe.Description)          {}
func (MessageAccepted) Describe(*observe.Description)         {}
func (AgentRejected) Describe(*observe.Description)           {}
func (AgentReportReceived) Describe(*observe.Description)     {}
func (StatisticsReady) Describe(*observe.Description)         {}
func (ModelReady) Describe(*observe.Description)              {}
func (UpdateLeftOut) Describe(*observe.Description)           {}
func (RepeatedLargeUpdates) Describe(*observe.Description)    {}
func (ModelRejected) Describe(*observe.Description)           {}
func (UpdatesExcludedByRule) Describe(*observe.Description)   {}
func (UpdatesClipped) Describe(*observe.Description)          {}
func (UploadStatusChanged) Describe(*observe.Description)     {}
func (MeshComputed) Describe(*observe.Description)            {}

// Describe implements observe.Event.
func (CloneSeen) Describe(d *observe.Description) {
	d.Inc(host.ClonesSeen)
}

// Describe implements observe.Event.
func (e MessageDropped) Describe(d *observe.Description) {
	d.Inc(DroppedMessages, host.Received, string(e.Reason))
	d.Log(observe.Warn, "message dropped", "kind", e.Kind, "agent", e.Agent, "reason", e.Reason, "err", e.Err)
}
