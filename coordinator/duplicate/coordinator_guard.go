// Package duplicate stops one of two coordinators that have the same key. Only a coordinator publishes announcements,
// so the guard reads what others publish on their topic, and which later announcements agents obey.
package duplicate

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/wire"
)

// OutdatedError is the cause in the StateError of a coordinator that has read an announcement signed with its own key
// and made by another process. The announcement is later than its own, or its state folder had no run.
type OutdatedError struct{ NewestPosition, OwnPosition wire.AnnouncementPosition }

// Error omits the phase of a folder between two rounds, which is that of a finished run, since the run continues.
func (e *OutdatedError) Error() string {
	return fmt.Sprintf("another coordinator runs with this key, or this state folder is an older copy: the newest "+
		"announcement at the broker is %s, this folder stands at %s", e.NewestPosition,
		strings.TrimSuffix(e.OwnPosition.String(), " "+wire.PhaseFinished.String()))
}

// Reading the topic of announcements after a connect.
const (
	retainedQueryInterval = 2 * time.Second // until the broker is asked again
	maxRetainedQueries    = 5               // without a reply the retained announcement counts as missing
	// MaxHeldBytes bounds the messages held until then. More are dropped, since senders repeat the important ones.
	MaxHeldBytes = 8 << 20
	// maxOwnDigests is the number of own announcements that are remembered until they return: more than a link ever
	// queues.
	maxOwnDigests = 1024
	// repeatInterval is the least time between two repetitions of the announcement, so that replays cannot multiply it.
	repeatInterval = time.Second
	// firstRetentionWait is the wait until the broker is asked whether it retains the announcement. firstAnswerWait is
	// the wait for its answer, after which the announcement is published again. Both double each time, up to
	// maxRetentionWait. A node of a cluster may deliver a message and fail to retain it; agents that connect then get
	// the announcement before.
	firstRetentionWait = 2 * time.Second
	firstAnswerWait    = 5 * time.Second
	maxRetentionWait   = time.Minute
)

// Config is the guard's access to the coordinator.
type Config struct {
	Conn              mqtt.Conn
	AnnouncementTopic string            // of announcements
	Folder            *runs.StateFolder // has the epoch
	Instance          uint64            // a random number of this process, in its announcements
	// RaiseEpoch: this start raises the epoch.
	RaiseEpoch bool
	// IsPresentAnnouncement reports whether a message is the present announcement of this process.
	IsPresentAnnouncement func(envelope []byte) bool
	// OpenAnnouncement opens an announcement that is signed with the coordinator's key. The error is the reason for
	// dropping it.
	OpenAnnouncement func(envelope []byte) (wire.Envelope, error)
	// RepeatAnnouncement publishes the present announcement again.
	RepeatAnnouncement func(now time.Time)
	Observer           observe.Observer
	Logger             *slog.Logger
}

// CoordinatorGuard detects other coordinators with the same key. After each connect the coordinator waits until the
// guard has read the announcement that the broker retains. All methods are called on the owner's goroutine; now is its
// time.
type CoordinatorGuard struct {
	cfg               Config
	journaledRun      wire.RunID
	newRunRequested   bool // a person has requested the run, and it has not been announced yet
	hasWorkedOverLink bool // the coordinator has worked over a link

	awaitsRetainedAnnouncement bool
	retainedQueries            int
	nextQueryAt                time.Time
	heldMessages               []mqtt.Message
	heldMessageBytes           int // of payload

	// the last own announcement that the broker may have; at first the journal's
	lastPublishedAnnouncement announcementIdentity
	// the last own announcement that the broker has returned; at first the journal's
	lastReturnedAnnouncement announcementIdentity
	presentAnnouncement      announcementIdentity // the present announcement; zero before the first
	ownAnnouncementDigests   []wire.Digest        // of the newest announcements of this process
	newestIssueTime          uint64               // the latest time in an announcement
	repeatAnnouncementAt     time.Time            // when to publish the announcement again; zero = never
	lastPublishAt            time.Time
	retentionCheck           retentionCheck // whether the broker retains the present announcement
	// linkLacksEcho: the broker returns no messages over this link, so the guard does not wait for them.
	linkLacksEcho bool

	aheadAgents aheadAgents
}

// announcementIdentity is the position of an announcement, with the process that made it. The digest is zero for a
// position from the journal.
type announcementIdentity struct {
	position wire.AnnouncementPosition
	instance uint64
	digest   wire.Digest
}

// retentionCheck is the state of the check whether the broker retains the present announcement.
type retentionCheck struct {
	nextStepAt    time.Time // of the next step; zero = the broker retains it, or no answer is possible
	brokerQueried bool      // the broker was asked; without an answer, the next step publishes the announcement again
	publications  uint      // number of times that the announcement was published
}

// backoff doubles a wait with each time that the announcement was published.
func (k *retentionCheck) backoff(first time.Duration) time.Duration {
	return min(first<<min(k.publications-1, 10), maxRetentionWait)
}

// New makes a guard. Restore comes next.
func New(cfg Config) *CoordinatorGuard {
	return &CoordinatorGuard{cfg: cfg, aheadAgents: aheadAgents{isConfirmedByAgent: map[wire.AgentID]bool{}}}
}

// RestorePosition sets the position in the journal. newRunRequested means that a person has requested the journal's
// run, and that it has not been announced yet.
func (g *CoordinatorGuard) RestorePosition(journal wire.AnnouncementPosition, newRunRequested bool) {
	g.journaledRun, g.newRunRequested = journal.Run, newRunRequested
	g.lastPublishedAnnouncement.position, g.lastReturnedAnnouncement.position = journal, journal
}

// GuardFinding is what the guard has found out. Its zero value is nothing new.
type GuardFinding struct {
	// MayWork: no other coordinator is further, so this one may work over the present link.
	MayWork bool
	// IsFirstMayWork and EpochRaised are set with the first MayWork of this process: the epoch in the folder may be
	// higher now.
	IsFirstMayWork, EpochRaised bool
	HeldMessages                []mqtt.Message // the messages that were held, for the coordinator to handle now
	StopCause                   error          // why the coordinator has to stop; a restart does not help
}

// LinkUp begins to wait for the retained announcement. There may be none, so an empty message, which agents ignore, is
// lastPublishedAnnouncement after the subscription: it returns after any retained one.
func (g *CoordinatorGuard) LinkUp(now time.Time) {
	g.awaitsRetainedAnnouncement, g.retainedQueries, g.linkLacksEcho = true, 0, false
	g.queryRetainedAnnouncement(now)
}

func (g *CoordinatorGuard) queryRetainedAnnouncement(now time.Time) {
	if g.retainedQueries > 0 {
		g.cfg.Conn.Subscribe(mqtt.AtMostOnce, g.cfg.AnnouncementTopic)
	}
	g.retainedQueries++
	g.nextQueryAt = now.Add(retainedQueryInterval)
	// busy or down: asked again later, or on the next link
	_ = g.cfg.Conn.Publish(mqtt.Message{Topic: g.cfg.AnnouncementTopic, QoS: mqtt.AtMostOnce})
}

// LinkDown returns to the last confirmed announcement: later ones may never have reached the broker.
func (g *CoordinatorGuard) LinkDown() {
	g.awaitsRetainedAnnouncement, g.nextQueryAt, g.repeatAnnouncementAt, g.retentionCheck = false, time.Time{},
		time.Time{}, retentionCheck{}
	g.lastPublishedAnnouncement = g.lastReturnedAnnouncement
}

// AwaitsRetainedAnnouncement reports whether the guard waits for the retained announcement. Messages of agents are held
// meanwhile.
func (g *CoordinatorGuard) AwaitsRetainedAnnouncement() bool { return g.awaitsRetainedAnnouncement }

// HoldMessage keeps a message until the retained announcement is read. It returns false if there is no room.
func (g *CoordinatorGuard) HoldMessage(m mqtt.Message) bool {
	if g.heldMessageBytes+len(m.Payload) > MaxHeldBytes {
		return false
	}
	g.heldMessages, g.heldMessageBytes = append(g.heldMessages, m), g.heldMessageBytes+len(m.Payload)
	return true
}

// Instance returns the random number of this process.
func (g *CoordinatorGuard) Instance() uint64 { return g.cfg.Instance }

// HasWorkedOverLink reports whether the coordinator has worked over a link since the process began.
func (g *CoordinatorGuard) HasWorkedOverLink() bool { return g.hasWorkedOverLink }

// PresentPosition returns the position of the present announcement; zero before the first.
func (g *CoordinatorGuard) PresentPosition() wire.AnnouncementPosition {
	return g.presentAnnouncement.position
}

// NextIssueTime returns the time for the next announcement: now, or the latest time in an earlier announcement.
func (g *CoordinatorGuard) NextIssueTime(now time.Time) uint64 {
	g.newestIssueTime = max(g.newestIssueTime, uint64(max(now.Unix(), 0)))
	return g.newestIssueTime
}

// RecordAnnouncement records an announcement that is about to be published.
func (g *CoordinatorGuard) RecordAnnouncement(position wire.AnnouncementPosition, digest wire.Digest) {
	g.presentAnnouncement, g.retentionCheck = announcementIdentity{position, g.cfg.Instance, digest}, retentionCheck{}
	g.ownAnnouncementDigests = append(g.ownAnnouncementDigests, digest)
	g.ownAnnouncementDigests = g.ownAnnouncementDigests[max(0, len(g.ownAnnouncementDigests)-maxOwnDigests):]
}

// RecordAnnouncementSent records that the connection has taken the present announcement.
func (g *CoordinatorGuard) RecordAnnouncementSent(now time.Time) {
	g.lastPublishedAnnouncement, g.lastPublishAt = g.presentAnnouncement, now
	g.retentionCheck = retentionCheck{publications: g.retentionCheck.publications + 1}
	if !g.linkLacksEcho {
		g.retentionCheck.nextStepAt = now.Add(g.retentionCheck.backoff(firstRetentionWait))
	}
}

// RepeatAnnouncementIfStale publishes the present announcement again if it was published long enough ago. It is called
// when an agent obeys an earlier announcement, so that its node of the broker does not return the present one. NATS
// keeps for two minutes what it has read.
func (g *CoordinatorGuard) RepeatAnnouncementIfStale(now time.Time) {
	if g.retentionCheck.publications > 0 && now.Sub(g.lastPublishAt) >= g.retentionCheck.backoff(firstRetentionWait) {
		g.repeatAnnouncement(now)
	}
}

// repeatAnnouncement publishes the present announcement again. The next wait begins when the connection has taken it.
func (g *CoordinatorGuard) repeatAnnouncement(now time.Time) {
	g.repeatAnnouncementAt, g.retentionCheck.nextStepAt = time.Time{}, time.Time{}
	g.cfg.RepeatAnnouncement(now)
}

// Deadline returns when Tick has something to do.
func (g *CoordinatorGuard) Deadline() (time.Time, bool) {
	if g.awaitsRetainedAnnouncement {
		return g.nextQueryAt, true
	}
	at := g.repeatAnnouncementAt
	if at.IsZero() || !g.retentionCheck.nextStepAt.IsZero() && g.retentionCheck.nextStepAt.Before(at) {
		at = g.retentionCheck.nextStepAt
	}
	return at, !at.IsZero()
}

// Tick asks again for the retained announcement, and repeats the own one when it is due.
func (g *CoordinatorGuard) Tick(now time.Time) GuardFinding {
	switch {
	case g.awaitsRetainedAnnouncement && !now.Before(g.nextQueryAt) && g.retainedQueries < maxRetainedQueries:
		g.queryRetainedAnnouncement(now)
	case g.awaitsRetainedAnnouncement && !now.Before(g.nextQueryAt):
		g.cfg.Logger.Warn("the broker returns nothing on the topic of announcements, not even the coordinator's own "+
			"message: another coordinator with this key would not be noticed", "topic", g.cfg.AnnouncementTopic)
		g.linkLacksEcho = true
		return g.endRetainedWait(nil)
	case g.retentionCheck.nextStepAt.IsZero() || now.Before(g.retentionCheck.nextStepAt):
		if !g.repeatAnnouncementAt.IsZero() && !now.Before(g.repeatAnnouncementAt) {
			g.repeatAnnouncement(now)
		}
	case g.retentionCheck.brokerQueried:
		g.repeatAnnouncement(now)
	default:
		g.retentionCheck.brokerQueried, g.retentionCheck.nextStepAt = true,
			now.Add(g.retentionCheck.backoff(firstAnswerWait))
		g.cfg.Conn.Subscribe(mqtt.AtMostOnce, g.cfg.AnnouncementTopic)
	}
	return GuardFinding{}
}

// ReceiveAnnouncement handles a message on the topic of announcements: an announcement, or the empty message that the
// guard has published. The error is the reason why the message is dropped.
func (g *CoordinatorGuard) ReceiveAnnouncement(now time.Time, m mqtt.Message) (GuardFinding, error) {
	if len(m.Payload) == 0 {
		if g.awaitsRetainedAnnouncement {
			return g.endRetainedWait(nil), nil
		}
		g.recordOverwrittenTopic(now, m.Retained)
		return GuardFinding{}, nil
	}
	if g.cfg.IsPresentAnnouncement(m.Payload) { // the present one, signed here
		g.recordReturnedAnnouncement(now, g.presentAnnouncement, m.Retained)
		if g.awaitsRetainedAnnouncement {
			return g.endRetainedWait(nil), nil
		}
		return GuardFinding{}, nil
	}
	e, err := g.cfg.OpenAnnouncement(m.Payload)
	var body wire.Announcement
	if err == nil {
		body, err = wire.DecodeAnnouncement(e.Body)
	}
	if err != nil {
		g.recordOverwrittenTopic(now, m.Retained)
		return GuardFinding{}, err
	}
	g.newestIssueTime = max(g.newestIssueTime, body.IssuedAt)
	a := announcementIdentity{wire.AnnouncementPositionOf(e.Header, &body), body.InstanceNonce, e.Digest()}
	own := slices.Contains(g.ownAnnouncementDigests, a.digest)
	if own {
		g.recordReturnedAnnouncement(now, a, m.Retained)
	}
	switch {
	case g.awaitsRetainedAnnouncement && own:
		return g.endRetainedWait(nil), nil
	case g.awaitsRetainedAnnouncement:
		return g.endRetainedWait(&a), nil
	case own:
	case !g.hasPrecedenceOver(a):
		return GuardFinding{StopCause: g.newOutdatedError(a.position)}, nil
	case !m.Retained: // a retained one may be old
		g.answerForeignAnnouncement(now, a.position)
	}
	return GuardFinding{}, nil
}

// recordReturnedAnnouncement records that an announcement of this process returned from the broker, which retains it or
// delivers it.
func (g *CoordinatorGuard) recordReturnedAnnouncement(now time.Time, a announcementIdentity, retained bool) {
	switch {
	case !retained:
	case a.digest == g.presentAnnouncement.digest:
		g.retentionCheck = retentionCheck{publications: g.retentionCheck.publications}
	case g.retentionCheck.brokerQueried:
		g.retentionCheck.nextStepAt = now // it retains an earlier one
	}
	if a.position.Compare(g.lastReturnedAnnouncement.position) > 0 {
		g.lastReturnedAnnouncement = a
	}
	if a.position.Compare(g.lastPublishedAnnouncement.position) > 0 {
		g.lastPublishedAnnouncement = a
	}
}

// recordOverwrittenTopic records that another client has published on the topic: whether the broker still retains the
// present announcementIdentity is checked again.
func (g *CoordinatorGuard) recordOverwrittenTopic(now time.Time, retained bool) {
	k := &g.retentionCheck
	switch {
	case g.linkLacksEcho || k.publications == 0: // the broker returns no messages, or has none over this link
	case k.brokerQueried && retained:
		k.nextStepAt = now
	case k.nextStepAt.IsZero():
		k.nextStepAt = now.Add(k.backoff(firstRetentionWait))
	}
}

// hasPrecedenceOver reports whether this coordinator continues although another one has made the announcement other. At
// equal positions the higher instance wins, or at equal instances (a copy of a process's memory) the smaller digest;
// both coordinators read both announcements, so exactly one continues.
func (g *CoordinatorGuard) hasPrecedenceOver(other announcementIdentity) bool {
	own := &g.lastPublishedAnnouncement
	if order := other.position.Compare(own.position); order != 0 {
		return order < 0
	}
	return own.digest.IsZero() || cmp.Or(cmp.Compare(other.instance, own.instance),
		bytes.Compare(own.digest[:], other.digest[:])) < 0
}

// endRetainedWait ends the wait for the retained announcement. retained is nil if there is none, or if this process has
// made it.
func (g *CoordinatorGuard) endRetainedWait(retained *announcementIdentity) GuardFinding {
	g.awaitsRetainedAnnouncement, g.nextQueryAt = false, time.Time{}
	behind := retained != nil && !g.hasPrecedenceOver(*retained)
	raised := !g.hasWorkedOverLink && (g.cfg.RaiseEpoch || g.newRunRequested && behind)
	switch {
	case retained != nil && retained.position.Run != g.lastPublishedAnnouncement.position.Run &&
		g.cfg.Folder.RunStartedFresh &&
		!g.hasWorkedOverLink && !g.cfg.RaiseEpoch:
		return GuardFinding{StopCause: g.removeRunOfLostState(retained.position)}
	case raised:
		if err := g.raiseEpoch(retained); err != nil {
			return GuardFinding{StopCause: err}
		}
	case behind:
		return GuardFinding{StopCause: g.newOutdatedError(retained.position)}
	}
	g.cfg.Folder.RunStartedFresh = false
	f := GuardFinding{MayWork: true, IsFirstMayWork: !g.hasWorkedOverLink, EpochRaised: raised,
		HeldMessages: g.heldMessages}
	g.hasWorkedOverLink, g.heldMessages, g.heldMessageBytes = true, nil, 0
	return f
}

// newOutdatedError returns the error of a coordinator that is behind another one.
func (g *CoordinatorGuard) newOutdatedError(newest wire.AnnouncementPosition) error {
	behind := &OutdatedError{NewestPosition: newest, OwnPosition: g.lastPublishedAnnouncement.position}
	do := "stop the other coordinator; or, if this folder is to go on, run `coordinator restore` once, or " +
		"`coordinator run --take-over`"
	if newest.Root > g.lastPublishedAnnouncement.position.Root {
		do = "give this one the newest root document with `coordinator root install FILE`: devices obey none that " +
			"goes by an older one"
	}
	return &runs.StateError{Path: g.cfg.Folder.Dir, Problem: behind.Error(), Err: behind, Remedy: do}
}

// removeRunOfLostState returns the error of a coordinator that has begun a run in an empty state folder, although the
// broker retains an announcement that is signed with its key. It removes the begun run, so that the next start finds
// the folder empty again.
func (g *CoordinatorGuard) removeRunOfLostState(retained wire.AnnouncementPosition) error {
	return &runs.StateError{Path: g.cfg.Folder.Dir,
		Problem: fmt.Sprintf("the state folder has no run, but the broker retains the "+
			"announcement of a run with this coordinator's key (%s): the state folder was lost, or state_dir is wrong",
			retained), Remedy: "restore a backup with `coordinator restore BACKUP`, or start over on purpose with " +
			"`coordinator run --new-run`",
		Err: errors.Join(&OutdatedError{NewestPosition: retained, OwnPosition: g.lastPublishedAnnouncement.position},
			g.cfg.Folder.JournalSlots.Clear())}
}

// raiseEpoch makes this coordinator's announcements later than all earlier ones. The epoch is on disk, in the first
// record, before the first announcement.
func (g *CoordinatorGuard) raiseEpoch(retained *announcementIdentity) error {
	before := g.cfg.Folder.Epoch
	// an older root document precedes in any epoch
	if retained != nil && retained.position.Root == g.lastPublishedAnnouncement.position.Root {
		before = max(before, retained.position.Epoch)
	}
	if before == math.MaxUint64 {
		return &runs.StateError{Path: g.cfg.Folder.Dir,
			Problem: "an announcement with this key has the highest possible epoch; the key may be stolen",
			Remedy: "create the next root document with another coordinator key and install it with " +
				"`coordinator root install` (docs/howto/change-keys-and-certificates.md)"}
	}
	g.cfg.Folder.Epoch = before + 1
	g.lastPublishedAnnouncement.position.Epoch = g.cfg.Folder.Epoch
	g.lastReturnedAnnouncement = g.lastPublishedAnnouncement
	return nil
}

// answerForeignAnnouncement reports an announcement of another coordinator that is not later than the own one, and has
// the own one lastPublishedAnnouncement again. The other coordinator stops when it reads that.
func (g *CoordinatorGuard) answerForeignAnnouncement(now time.Time, foreign wire.AnnouncementPosition) {
	g.cfg.Observer.Observe(ForeignAnnouncementSeen{Foreign: foreign, Own: g.lastPublishedAnnouncement.position})
	if g.repeatAnnouncementAt.IsZero() {
		g.repeatAnnouncementAt = g.lastPublishAt.Add(repeatInterval)
		if g.repeatAnnouncementAt.Before(now) {
			g.repeatAnnouncementAt = now
		}
	}
}

// Metrics are the metrics of the guard's events.
var Metrics = []*observe.Metric{foreignAnnouncements, agentsAhead}

var foreignAnnouncements = observe.Counter("foreign_announcements_total",
	"Announcements signed with this coordinator's key by another coordinator, or replayed.")

// ForeignAnnouncementSeen: an announcement signed with this coordinator's key was published that this coordinator has
// not made, and that is not later than its own. Another coordinator runs with the key, or somebody replays an old
// message.
type ForeignAnnouncementSeen struct{ Foreign, Own wire.AnnouncementPosition }

// Describe implements observe.Event. The condition lasts until the process ends, since no event shows that the other
// coordinator has stopped.
func (e ForeignAnnouncementSeen) Describe(d *observe.EventDescription) {
	d.IncCounter(foreignAnnouncements)
	d.Log(observe.Error, "foreign announcement signed with this coordinator's key", "foreign", e.Foreign,
		"own", e.Own)
	d.RaiseCondition("foreign announcement",
		"an announcement is signed with this coordinator's key, but this coordinator did "+
			"not make it: another coordinator runs with the key, or somebody replays an old message",
		"stop the other coordinator that runs with identity.key_file and a copy of state_dir")
}
