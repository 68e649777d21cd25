// Package duplicate detects two coordinators with the same key and stops one of them. It reads the announcements of
// other processes, and the hello messages of agents that follow a later announcement.
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

// OutdatedError reports that another process published an announcement signed with the coordinator's key. The
// announcement is later than the coordinator's own, or its state folder had no run. It is wrapped in a runs.StateError.
type OutdatedError struct{ NewestPosition, OwnPosition wire.AnnouncementPosition }

// Error omits the phase "finished" of the coordinator's own position, because the journal of a continuing run also
// contains this phase between two rounds.
func (e *OutdatedError) Error() string {
	return fmt.Sprintf("another coordinator is running with this key, or this state folder is an older copy: the "+
		"newest announcement on the broker is at %s, but this folder is at %s", e.NewestPosition,
		strings.TrimSuffix(e.OwnPosition.String(), " "+wire.PhaseFinished.String()))
}

// Limits for reading the announcement topic and for repeating announcements.
const (
	retainedQueryInterval = 2 * time.Second // interval between queries for the retained announcement
	// maxRetainedQueries is the number of queries without a reply after which the guard assumes that no announcement is
	// retained.
	maxRetainedQueries = 5
	// MaxHeldBytes is the maximum size of the messages that are held until the retained announcement has been read.
	// Further messages are dropped; senders repeat the important ones.
	MaxHeldBytes = 8 << 20
	// maxOwnDigests is the number of own announcements that are remembered until the broker returns them. It exceeds
	// the queue of any connection.
	maxOwnDigests = 1024
	// repeatInterval is the minimum time between repetitions of the announcement. It prevents replayed messages from
	// multiplying the announcement.
	repeatInterval = time.Second
	// Delays for checking that the broker retains the announcement: firstRetentionWait until the query, and
	// firstAnswerWait from the query until the announcement is published again. Both double each time, up to
	// maxRetentionWait. A cluster node may deliver a message without retaining it, and new agents then receive the
	// previous announcement.
	firstRetentionWait = 2 * time.Second
	firstAnswerWait    = 5 * time.Second
	maxRetentionWait   = time.Minute
)

// Config configures a CoordinatorGuard.
type Config struct {
	Conn              mqtt.Conn
	AnnouncementTopic string            // MQTT topic of the announcements
	Folder            *runs.StateFolder // state folder, which stores the epoch
	Instance          uint64            // random number of this process, included in its announcements
	// RaiseEpoch is true if this start must raise the epoch.
	RaiseEpoch bool
	// IsPresentAnnouncement reports whether a message is the current announcement of this process.
	IsPresentAnnouncement func(envelope []byte) bool
	// OpenAnnouncement verifies and decodes an announcement signed with the coordinator's key. The error is the reason
	// for dropping the message.
	OpenAnnouncement func(envelope []byte) (wire.Envelope, error)
	// RepeatAnnouncement publishes the current announcement again.
	RepeatAnnouncement func(now time.Time)
	Observer           observe.Observer
	Logger             *slog.Logger
}

// CoordinatorGuard detects other coordinators with the same key. After each connect, the coordinator waits until the
// guard has read the retained announcement. All methods must be called on the owner goroutine, with its current time.
type CoordinatorGuard struct {
	cfg               Config
	journaledRun      wire.RunID
	newRunRequested   bool // true if the operator requested the run and it is not announced yet
	hasWorkedOverLink bool // true once the coordinator has worked over any connection

	awaitsRetainedAnnouncement bool
	retainedQueries            int
	nextQueryAt                time.Time
	heldMessages               []mqtt.Message
	heldMessageBytes           int // total payload size of heldMessages

	// lastPublishedAnnouncement is the last announcement of this coordinator that the broker may have; initially the
	// position in the journal.
	lastPublishedAnnouncement announcementIdentity
	// lastReturnedAnnouncement is the last announcement of this coordinator that the broker returned; initially the
	// position in the journal.
	lastReturnedAnnouncement announcementIdentity
	presentAnnouncement      announcementIdentity // current announcement; zero before the first announcement
	ownAnnouncementDigests   []wire.Digest        // digests of the newest announcements of this process
	newestIssueTime          uint64               // latest issue time of any announcement
	repeatAnnouncementAt     time.Time            // time of the next repetition; zero if none is scheduled
	lastPublishAt            time.Time
	retentionCheck           retentionCheck // check that the broker retains the current announcement
	// linkLacksEcho is true if the broker returns no own messages over this connection. The guard then does not wait
	// for them.
	linkLacksEcho bool

	aheadAgents aheadAgents
}

// announcementIdentity identifies an announcement by its position, process and digest. The digest is zero for a
// position from the journal.
type announcementIdentity struct {
	position wire.AnnouncementPosition
	instance uint64
	digest   wire.Digest
}

// retentionCheck is the state of the check that the broker retains the current announcement.
type retentionCheck struct {
	nextStepAt    time.Time // time of the next step; zero if the check has ended
	brokerQueried bool      // true if the broker was queried; the next step publishes again
	publications  uint      // number of times that the announcement was published
}

// backoff returns the delay first, doubled for each repeated publication up to maxRetentionWait.
func (k *retentionCheck) backoff(first time.Duration) time.Duration {
	return min(first<<min(k.publications-1, 10), maxRetentionWait)
}

// New returns a guard. The caller must next call RestorePosition.
func New(cfg Config) *CoordinatorGuard {
	return &CoordinatorGuard{cfg: cfg, aheadAgents: aheadAgents{isConfirmedByAgent: map[wire.AgentID]bool{}}}
}

// RestorePosition sets the position from the journal. newRunRequested is true if the operator requested the journaled
// run and it is not announced yet.
func (g *CoordinatorGuard) RestorePosition(journal wire.AnnouncementPosition, newRunRequested bool) {
	g.journaledRun, g.newRunRequested = journal.Run, newRunRequested
	g.lastPublishedAnnouncement.position, g.lastReturnedAnnouncement.position = journal, journal
}

// GuardFinding is the result of an event for the coordinator. The zero value means no change.
type GuardFinding struct {
	// MayWork is true if no other coordinator has announced a later round, so that this coordinator may work over the
	// current connection.
	MayWork bool
	// IsFirstMayWork is true with the first MayWork of this process. EpochRaised is true if the guard also raised the
	// epoch in the state folder.
	IsFirstMayWork, EpochRaised bool
	// HeldMessages contains the messages of agents that were held back and that the coordinator must handle now.
	HeldMessages []mqtt.Message
	StopCause    error // reason for stopping the coordinator; restarting does not help
}

// LinkUp starts the wait for the retained announcement. After subscribing, the guard publishes an empty message, which
// agents ignore. The broker returns the empty message after any retained announcement. The empty message therefore ends
// the wait if no announcement is retained.
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
	// If the connection is busy or down, the next query is sent later.
	_ = g.cfg.Conn.Publish(mqtt.Message{Topic: g.cfg.AnnouncementTopic, QoS: mqtt.AtMostOnce})
}

// LinkDown makes the last announcement that the broker has sent back the current announcement again, because later
// announcements may not have reached the broker.
func (g *CoordinatorGuard) LinkDown() {
	g.awaitsRetainedAnnouncement, g.nextQueryAt, g.repeatAnnouncementAt, g.retentionCheck = false, time.Time{},
		time.Time{}, retentionCheck{}
	g.lastPublishedAnnouncement = g.lastReturnedAnnouncement
}

// AwaitsRetainedAnnouncement reports whether the guard waits for the retained announcement. Meanwhile, messages of
// agents are held.
func (g *CoordinatorGuard) AwaitsRetainedAnnouncement() bool { return g.awaitsRetainedAnnouncement }

// HoldMessage stores a message of an agent until the retained announcement has been read. It returns false if the
// buffer is full.
func (g *CoordinatorGuard) HoldMessage(m mqtt.Message) bool {
	if g.heldMessageBytes+len(m.Payload) > MaxHeldBytes {
		return false
	}
	g.heldMessages, g.heldMessageBytes = append(g.heldMessages, m), g.heldMessageBytes+len(m.Payload)
	return true
}

// Instance returns the random number that identifies this process in announcements.
func (g *CoordinatorGuard) Instance() uint64 { return g.cfg.Instance }

// HasWorkedOverLink reports whether the coordinator has worked over any connection since the process started.
func (g *CoordinatorGuard) HasWorkedOverLink() bool { return g.hasWorkedOverLink }

// PresentPosition returns the position of the current announcement. It returns zero before the first announcement.
func (g *CoordinatorGuard) PresentPosition() wire.AnnouncementPosition {
	return g.presentAnnouncement.position
}

// NextIssueTime returns the issue time for the next announcement: now, or the time of the latest announcement if the
// clock was set back.
func (g *CoordinatorGuard) NextIssueTime(now time.Time) uint64 {
	g.newestIssueTime = max(g.newestIssueTime, uint64(max(now.Unix(), 0)))
	return g.newestIssueTime
}

// RecordAnnouncement records an announcement before it is published.
func (g *CoordinatorGuard) RecordAnnouncement(position wire.AnnouncementPosition, digest wire.Digest) {
	g.presentAnnouncement, g.retentionCheck = announcementIdentity{position, g.cfg.Instance, digest}, retentionCheck{}
	g.ownAnnouncementDigests = append(g.ownAnnouncementDigests, digest)
	g.ownAnnouncementDigests = g.ownAnnouncementDigests[max(0, len(g.ownAnnouncementDigests)-maxOwnDigests):]
}

// RecordAnnouncementSent records that the connection has accepted the current announcement for sending.
func (g *CoordinatorGuard) RecordAnnouncementSent(now time.Time) {
	g.lastPublishedAnnouncement, g.lastPublishAt = g.presentAnnouncement, now
	g.retentionCheck = retentionCheck{publications: g.retentionCheck.publications + 1}
	if !g.linkLacksEcho {
		g.retentionCheck.nextStepAt = now.Add(g.retentionCheck.backoff(firstRetentionWait))
	}
}

// RepeatAnnouncementIfStale publishes the current announcement again if the last publication is old enough. It is
// called when an agent follows an earlier announcement, because the agent's broker node may still return an old
// message. NATS caches retained messages for two minutes.
func (g *CoordinatorGuard) RepeatAnnouncementIfStale(now time.Time) {
	if g.retentionCheck.publications > 0 && now.Sub(g.lastPublishAt) >= g.retentionCheck.backoff(firstRetentionWait) {
		g.repeatAnnouncement(now)
	}
}

// repeatAnnouncement publishes the current announcement again. The delay before the next repetition starts when the
// connection has accepted the message.
func (g *CoordinatorGuard) repeatAnnouncement(now time.Time) {
	g.repeatAnnouncementAt, g.retentionCheck.nextStepAt = time.Time{}, time.Time{}
	g.cfg.RepeatAnnouncement(now)
}

// Deadline returns the time at which Tick must be called next. It returns false if no call is needed.
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

// Tick repeats the query for the retained announcement, checks that the broker retains the current announcement, and
// publishes the current announcement again when due.
func (g *CoordinatorGuard) Tick(now time.Time) GuardFinding {
	switch {
	case g.awaitsRetainedAnnouncement && !now.Before(g.nextQueryAt) && g.retainedQueries < maxRetainedQueries:
		g.queryRetainedAnnouncement(now)
	case g.awaitsRetainedAnnouncement && !now.Before(g.nextQueryAt):
		g.cfg.Logger.Warn("the broker does not return the coordinator's own announcements, so a second coordinator "+
			"with the same key would not be detected", "topic", g.cfg.AnnouncementTopic)
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

// ReceiveAnnouncement handles a message on the announcement topic: an announcement, or an empty message such as the
// guard publishes. The error is the reason for dropping the message.
func (g *CoordinatorGuard) ReceiveAnnouncement(now time.Time, m mqtt.Message) (GuardFinding, error) {
	if len(m.Payload) == 0 {
		if g.awaitsRetainedAnnouncement {
			return g.endRetainedWait(nil), nil
		}
		g.recordOverwrittenTopic(now, m.Retained)
		return GuardFinding{}, nil
	}
	if g.cfg.IsPresentAnnouncement(m.Payload) { // current announcement, signed by this process
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
	case !m.Retained: // a retained announcement may be an old message
		g.answerForeignAnnouncement(now, a.position)
	}
	return GuardFinding{}, nil
}

// recordReturnedAnnouncement records that the broker returned an announcement of this process, retained or not.
func (g *CoordinatorGuard) recordReturnedAnnouncement(now time.Time, a announcementIdentity, retained bool) {
	switch {
	case !retained:
	case a.digest == g.presentAnnouncement.digest:
		g.retentionCheck = retentionCheck{publications: g.retentionCheck.publications}
	case g.retentionCheck.brokerQueried:
		g.retentionCheck.nextStepAt = now // the broker retains an earlier announcement
	}
	if a.position.Compare(g.lastReturnedAnnouncement.position) > 0 {
		g.lastReturnedAnnouncement = a
	}
	if a.position.Compare(g.lastPublishedAnnouncement.position) > 0 {
		g.lastPublishedAnnouncement = a
	}
}

// recordOverwrittenTopic records that another client published on the announcement topic. It schedules a new check that
// the broker retains the current announcement.
func (g *CoordinatorGuard) recordOverwrittenTopic(now time.Time, retained bool) {
	k := &g.retentionCheck
	switch {
	case g.linkLacksEcho || k.publications == 0: // the connection returns no own messages, or no announcement was sent
	case k.brokerQueried && retained:
		k.nextStepAt = now
	case k.nextStepAt.IsZero():
		k.nextStepAt = now.Add(k.backoff(firstRetentionWait))
	}
}

// hasPrecedenceOver reports whether this coordinator continues although another coordinator published the announcement
// other. The later position wins, then the higher instance number, then the smaller digest. Both coordinators read both
// announcements, so exactly one coordinator continues.
func (g *CoordinatorGuard) hasPrecedenceOver(other announcementIdentity) bool {
	own := &g.lastPublishedAnnouncement
	if order := other.position.Compare(own.position); order != 0 {
		return order < 0
	}
	return own.digest.IsZero() || cmp.Or(cmp.Compare(other.instance, own.instance),
		bytes.Compare(own.digest[:], other.digest[:])) < 0
}

// endRetainedWait ends the wait for the retained announcement. retained is nil if none is retained or this process
// published it.
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

// newOutdatedError returns the error for a coordinator that is behind another coordinator.
func (g *CoordinatorGuard) newOutdatedError(newest wire.AnnouncementPosition) error {
	behind := &OutdatedError{NewestPosition: newest, OwnPosition: g.lastPublishedAnnouncement.position}
	do := "stop the other coordinator; or, to continue with this folder, " +
		"run `coordinator restore` once or `coordinator run --take-over`"
	if newest.Root > g.lastPublishedAnnouncement.position.Root {
		do = "install the newest root document here with `coordinator root install FILE`: devices ignore a " +
			"coordinator with an older root document"
	}
	return &runs.StateError{Path: g.cfg.Folder.Dir, Problem: behind.Error(), Err: behind, Remedy: do}
}

// removeRunOfLostState removes a run that began in an empty state folder although the broker retains an announcement
// signed with the same key, so that the next start finds the folder empty again. It returns the error that describes
// the problem.
func (g *CoordinatorGuard) removeRunOfLostState(retained wire.AnnouncementPosition) error {
	return &runs.StateError{Path: g.cfg.Folder.Dir,
		Problem: fmt.Sprintf("the state folder has no run, but the broker retains the "+
			"announcement of a run with this coordinator's key (%s): the state folder was lost, or state_dir is wrong",
			retained), Remedy: "restore a backup with `coordinator restore BACKUP`, " +
			"or start a new run with `coordinator run --new-run`",
		Err: errors.Join(&OutdatedError{NewestPosition: retained, OwnPosition: g.lastPublishedAnnouncement.position},
			g.cfg.Folder.JournalSlots.Clear())}
}

// raiseEpoch raises the epoch above all earlier announcements. The epoch is written to disk with the first record,
// before the first announcement.
func (g *CoordinatorGuard) raiseEpoch(retained *announcementIdentity) error {
	before := g.cfg.Folder.Epoch
	// An announcement with an older root document never takes precedence.
	if retained != nil && retained.position.Root == g.lastPublishedAnnouncement.position.Root {
		before = max(before, retained.position.Epoch)
	}
	if before == math.MaxUint64 {
		return &runs.StateError{Path: g.cfg.Folder.Dir,
			Problem: "an announcement signed with this coordinator's key has the highest possible epoch number, so " +
				"the key may have been stolen",
			Remedy: "create the next root document with a new coordinator key, and install it with `coordinator root " +
				"install` (docs/howto/change-keys-and-certificates.md)"}
	}
	g.cfg.Folder.Epoch = before + 1
	g.lastPublishedAnnouncement.position.Epoch = g.cfg.Folder.Epoch
	g.lastReturnedAnnouncement = g.lastPublishedAnnouncement
	return nil
}

// answerForeignAnnouncement reports an announcement of another coordinator that is not later than this coordinator's
// own announcement. It schedules a repetition of the own announcement, which stops the other coordinator.
func (g *CoordinatorGuard) answerForeignAnnouncement(now time.Time, foreign wire.AnnouncementPosition) {
	g.cfg.Observer.Observe(ForeignAnnouncementSeen{Foreign: foreign, Own: g.lastPublishedAnnouncement.position})
	if g.repeatAnnouncementAt.IsZero() {
		g.repeatAnnouncementAt = g.lastPublishAt.Add(repeatInterval)
		if g.repeatAnnouncementAt.Before(now) {
			g.repeatAnnouncementAt = now
		}
	}
}

// Metrics lists the metrics of the guard's events.
var Metrics = []*observe.Metric{foreignAnnouncements, agentsAhead}

var foreignAnnouncements = observe.Counter("foreign_announcements_total",
	"Received announcements that are signed with this coordinator's key but were published by another coordinator or "+
		"replayed.")

// ForeignAnnouncementSeen reports an announcement that another process signed with this coordinator's key and that is
// not later than this coordinator's own announcement. Either another coordinator uses the key, or someone replays an
// old message.
type ForeignAnnouncementSeen struct{ Foreign, Own wire.AnnouncementPosition }

// Describe implements observe.Event. The condition lasts until the process ends, because no event shows that the other
// coordinator has stopped.
func (e ForeignAnnouncementSeen) Describe(d *observe.EventDescription) {
	d.IncCounter(foreignAnnouncements)
	d.Log(observe.Error, "received an announcement with this coordinator's key from another process", "foreign",
		e.Foreign,
		"own", e.Own)
	d.RaiseCondition("foreign announcement",
		"an announcement is signed with this coordinator's key, but was sent by another process: "+
			"another coordinator uses the key, or an old message was replayed",
		"find and stop the other coordinator that uses identity.key_file and a copy of state_dir")
}
