package coordinator

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/coordinator/devices"
	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round/optimizer"
	"github.com/fedmesh/fedmesh/round/rule"
	"github.com/fedmesh/fedmesh/wire"
)

// OutdatedCoordinatorError is the cause in the StateError of a coordinator that has read an announcement signed with
// its own key and made by another process. The announcement is later than its own, or its state folder had no run.
type OutdatedCoordinatorError struct{ NewestPosition, OwnPosition wire.AnnouncementPosition }

func (e *OutdatedCoordinatorError) Error() string {
	return fmt.Sprintf("another coordinator runs with this key, or this state folder is an older copy: the newest "+
		"announcement at the broker is %s, this folder stands at %s",
		e.NewestPosition, formatPosition(e.OwnPosition))
}

// formatPosition formats the place of a folder. Between two rounds placeOf gives the phase of a finished run; it is
// left out, since the run goes on.
func formatPosition(o wire.AnnouncementPosition) string {
	return strings.TrimSuffix(o.String(), " "+wire.PhaseFinished.String())
}

// stopAsOutdated ends the coordinator. A restart does not help.
func (c *Coordinator) stopAsOutdated(newest wire.AnnouncementPosition) {
	behind := &OutdatedCoordinatorError{NewestPosition: newest,
		OwnPosition: c.duplicateGuard.publishedPosition.position}
	do := "stop the other coordinator; or, if this folder is to go on, run `coordinator restore` once, or " +
		"`coordinator run --take-over`"
	if newest.Root > c.duplicateGuard.publishedPosition.position.Root {
		do = "give this one the newest root document with `coordinator root install FILE`: devices obey none that " +
			"goes by an older one"
	}
	c.stopError = &runs.StateError{Path: c.cfg.Dir, Problem: behind.Error(), Err: behind, Remedy: do}
}

// stopForLostState ends a coordinator that has begun a run in an empty state folder, although the broker retains an
// announcement that is signed with its key. The begun run is removed, so that the next start finds the folder as it
// was.
func (c *Coordinator) stopForLostState(retained wire.AnnouncementPosition) {
	err := &runs.StateError{Path: c.cfg.Dir,
		Problem: fmt.Sprintf("the state folder has no run, but the broker retains the "+
			"announcement of a run with this coordinator's key (%s): the state folder was lost, or state_dir is wrong",
			retained), Remedy: "restore a backup with `coordinator restore BACKUP`, or start over on purpose with " +
			"`coordinator run --new-run`"}
	err.Err = errors.Join(&OutdatedCoordinatorError{NewestPosition: retained,
		OwnPosition: c.duplicateGuard.publishedPosition.position},
		c.stateFolder.JournalSlots.Clear())
	c.stopError = err
}

// Reading the round topic after a connect.
const (
	retainedQueryInterval = 2 * time.Second // until the broker is asked again
	lookTries             = 5               // until the retained announcement counts as missing
	// heldBytes bounds the messages held until then; more are dropped, since senders repeat the important ones.
	heldBytes = 8 << 20
	// maxOwnDigests is how many own announcements are remembered until they come back: more than a link ever queues.
	maxOwnDigests = 1024
	// repeatAgain is the least time between two repetitions of the announcement, so that replays cannot multiply it.
	repeatAgain = time.Second
	// firstRetentionWait is the wait until the broker is asked whether it retains the announcement, and answerFirst
	// until the announcement is published again for want of an answer; each time both double, up to maxRetentionWait. A
	// node of a cluster may deliver a message and fail to retain it; whoever connects then gets the announcement
	// before.
	firstRetentionWait = 2 * time.Second
	answerFirst        = 5 * time.Second
	maxRetentionWait   = time.Minute
)

// duplicateCoordinatorGuard stops one of two coordinators that have the same key. It reads the round topic, which only
// a coordinator writes. After each connect the coordinator waits until it has read the announcement retained there.
type duplicateCoordinatorGuard struct {
	conn  mqtt.Conn
	topic string

	awaitsRetainedAnnouncement bool
	retainedQueries            int
	nextQueryAt                time.Time // of the next try
	heldMessages               []mqtt.Message
	heldMessageBytes           int // of payload in held

	// publishedPosition belongs to the last own announcement that the broker may have, confirmed to the last one that
	// it has returned. Before this process announces, both come from the journal.
	publishedPosition, confirmedPosition announcementIdentity
	currentPosition                      announcementIdentity // the present announcement
	ownDigests                           []wire.Digest        // of the newest announcements of this process
	repeatAt                             time.Time            // when to publish the announcement again; zero = never
	lastPublishedAt                      time.Time            // when it was last published
	retentionCheck                       retentionCheck       // whether the broker retains it
	// the broker returns no messages over this link, so the guard does not wait for them
	linkLacksEcho bool
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

// announcementIdentity is an announcement's place in time, and its digest; the digest is zero for a place from the
// journal.
type announcementIdentity struct {
	position wire.AnnouncementPosition
	instance uint64
	digest   wire.Digest
}

// brokerNodeIsStale reports whether a hello to an earlier announcement shows that its agent's node of the broker does
// not return the present one: it was published long enough ago. NATS keeps what it has read for two minutes, also what
// is old by then.
func (f *duplicateCoordinatorGuard) brokerNodeIsStale(now time.Time) bool {
	return f.retentionCheck.publications > 0 &&
		now.Sub(f.lastPublishedAt) >= f.retentionCheck.backoff(firstRetentionWait)
}

// awaitRetained begins to wait for the retained announcement. There may be none, so an empty message, which agents
// ignore, is published after the subscription: it comes back after any retained one.
func (f *duplicateCoordinatorGuard) awaitRetained(now time.Time) {
	f.awaitsRetainedAnnouncement, f.retainedQueries, f.linkLacksEcho = true, 0, false
	f.queryRetained(now)
}

func (f *duplicateCoordinatorGuard) queryRetained(now time.Time) {
	if f.retainedQueries > 0 {
		f.conn.Subscribe(mqtt.AtMostOnce, f.topic)
	}
	f.retainedQueries++
	f.nextQueryAt = now.Add(retainedQueryInterval)
	// busy or down: asked again later, or on the next link
	_ = f.conn.Publish(mqtt.Message{Topic: f.topic, QoS: mqtt.AtMostOnce})
}

// handleDisconnect goes back to the last confirmed announcement: later ones may never have reached the broker.
func (f *duplicateCoordinatorGuard) handleDisconnect() {
	f.awaitsRetainedAnnouncement, f.nextQueryAt, f.repeatAt, f.retentionCheck = false, time.Time{}, time.Time{},
		retentionCheck{}
	f.publishedPosition = f.confirmedPosition
}

// holdMessage keeps a message until the retained announcement is read. It reports false if there is no room.
func (f *duplicateCoordinatorGuard) holdMessage(m mqtt.Message) bool {
	if f.heldMessageBytes+len(m.Payload) > heldBytes {
		return false
	}
	f.heldMessages, f.heldMessageBytes = append(f.heldMessages, m), f.heldMessageBytes+len(m.Payload)
	return true
}

// noteOwnAnnouncement records an announcement that is about to be published.
func (f *duplicateCoordinatorGuard) noteOwnAnnouncement(s announcementIdentity) {
	f.currentPosition, f.retentionCheck = s, retentionCheck{}
	f.ownDigests = append(f.ownDigests, s.digest)
	f.ownDigests = f.ownDigests[max(0, len(f.ownDigests)-maxOwnDigests):]
}

// noteAnnouncementSent records that the connection has taken the present announcement.
func (f *duplicateCoordinatorGuard) noteAnnouncementSent(now time.Time) {
	f.publishedPosition, f.lastPublishedAt = f.currentPosition, now
	f.retentionCheck = retentionCheck{publications: f.retentionCheck.publications + 1}
	if !f.linkLacksEcho {
		f.retentionCheck.nextStepAt = now.Add(f.retentionCheck.backoff(firstRetentionWait))
	}
}

// noteAnnouncementReturned records that an announcement of this process came back from the broker, which retains it or
// delivers it.
func (f *duplicateCoordinatorGuard) noteAnnouncementReturned(now time.Time, s announcementIdentity, retained bool) {
	switch {
	case !retained:
	case s.digest == f.currentPosition.digest:
		f.retentionCheck = retentionCheck{publications: f.retentionCheck.publications}
	case f.retentionCheck.brokerQueried:
		f.retentionCheck.nextStepAt = now // it retains an earlier one
	}
	if s.position.Compare(f.confirmedPosition.position) > 0 {
		f.confirmedPosition = s
	}
	if s.position.Compare(f.publishedPosition.position) > 0 {
		f.publishedPosition = s
	}
}

// noteTopicOverwritten records that somebody else has published on the topic: whether the broker still retains the
// present announcement is checked again.
func (f *duplicateCoordinatorGuard) noteTopicOverwritten(now time.Time, retained bool) {
	switch {
	case f.linkLacksEcho ||
		f.retentionCheck.publications == 0: // the broker returns no messages, or has none over this link
	case f.retentionCheck.brokerQueried && retained:
		f.retentionCheck.nextStepAt = now
	case f.retentionCheck.nextStepAt.IsZero():
		f.retentionCheck.nextStepAt = now.Add(f.retentionCheck.backoff(firstRetentionWait))
	}
}

// hasPrecedenceOver reports whether this coordinator goes on although another one has made the announcement other. At
// equal places the higher instance wins, or at equal instances (a copy of a process's memory) the smaller digest; both
// coordinators read both announcements, so exactly one goes on.
func (f *duplicateCoordinatorGuard) hasPrecedenceOver(other announcementIdentity) bool {
	if order := other.position.Compare(f.publishedPosition.position); order != 0 {
		return order < 0
	}
	return f.publishedPosition.digest.IsZero() || cmp.Or(cmp.Compare(other.instance, f.publishedPosition.instance),
		bytes.Compare(f.publishedPosition.digest[:], other.digest[:])) < 0
}

func (f *duplicateCoordinatorGuard) nextTickAt() (time.Time, bool) {
	if f.awaitsRetainedAnnouncement {
		return f.nextQueryAt, true
	}
	at := f.repeatAt
	if at.IsZero() || !f.retentionCheck.nextStepAt.IsZero() && f.retentionCheck.nextStepAt.Before(at) {
		at = f.retentionCheck.nextStepAt
	}
	return at, !at.IsZero()
}

// tickGuard asks again for the retained announcement, and repeats the own one when it is due.
func (c *Coordinator) tickGuard(now time.Time) {
	f := c.duplicateGuard
	switch {
	case f.awaitsRetainedAnnouncement && !now.Before(f.nextQueryAt) && f.retainedQueries < lookTries:
		f.queryRetained(now)
	case f.awaitsRetainedAnnouncement && !now.Before(f.nextQueryAt):
		c.cfg.Logger.Warn("the broker returns nothing on the topic of announcements, not even the coordinator's own "+
			"message: another coordinator with this key would not be noticed", "topic", f.topic)
		f.linkLacksEcho = true
		c.endRetainedWait(nil)
	case f.retentionCheck.nextStepAt.IsZero() || now.Before(f.retentionCheck.nextStepAt):
		if !f.repeatAt.IsZero() && !now.Before(f.repeatAt) {
			c.repeatAnnouncement(now)
		}
	case f.retentionCheck.brokerQueried:
		c.repeatAnnouncement(now)
	default:
		f.retentionCheck.brokerQueried, f.retentionCheck.nextStepAt = true,
			now.Add(f.retentionCheck.backoff(answerFirst))
		f.conn.Subscribe(mqtt.AtMostOnce, f.topic)
	}
}

// repeatAnnouncement publishes the present announcement again. The next wait begins when the connection has taken it.
func (c *Coordinator) repeatAnnouncement(now time.Time) {
	c.duplicateGuard.repeatAt, c.duplicateGuard.retentionCheck.nextStepAt = time.Time{}, time.Time{}
	c.publisher.Repeat(now)
}

// handleRoundTopicMessage takes a message on the round topic: an announcement, or the empty message that look has
// published.
func (c *Coordinator) handleRoundTopicMessage(m mqtt.Message) error {
	f := c.duplicateGuard
	if len(m.Payload) == 0 {
		if f.awaitsRetainedAnnouncement {
			c.endRetainedWait(nil)
		} else {
			f.noteTopicOverwritten(c.ownerLoop.Now(), m.Retained)
		}
		return nil
	}
	if c.publisher.IsPresent(m.Payload) { // the present one, signed here
		f.noteAnnouncementReturned(c.ownerLoop.Now(), f.currentPosition, m.Retained)
		if f.awaitsRetainedAnnouncement {
			c.endRetainedWait(nil)
		}
		return nil
	}
	e, err := c.openOwnAnnouncement(m.Payload)
	var a wire.Announcement
	if err == nil {
		a, err = wire.DecodeAnnouncement(e.Body)
	}
	if err != nil {
		f.noteTopicOverwritten(c.ownerLoop.Now(), m.Retained)
		return err
	}
	c.lastAnnouncedTime = max(c.lastAnnouncedTime, a.IssuedAt)
	s := announcementIdentity{wire.PositionOf(e.Header, &a), a.InstanceNonce, e.Digest()}
	own := slices.Contains(f.ownDigests, s.digest)
	if own {
		f.noteAnnouncementReturned(c.ownerLoop.Now(), s, m.Retained)
	}
	switch {
	case f.awaitsRetainedAnnouncement && own:
		c.endRetainedWait(nil)
	case f.awaitsRetainedAnnouncement:
		c.endRetainedWait(&s)
	case own:
	case !f.hasPrecedenceOver(s):
		c.stopAsOutdated(s.position)
	case !m.Retained: // a retained one may be old
		c.reportForeignAnnouncement(s)
	}
	return nil
}

// openOwnAnnouncement opens an announcement, which must be signed with the coordinator's own key, or one that counts
// beside it.
func (c *Coordinator) openOwnAnnouncement(p []byte) (wire.Envelope, error) {
	e, err := wire.ParseEnvelope(p)
	switch {
	case err != nil:
		return e, err
	case e.Federation != c.cfg.Federation || e.Sender != wire.CoordinatorID || e.Type != wire.TypeAnnouncement:
		return e, host.NewDropError(devices.DropForeign,
			"%s of %s in federation %s, where only this coordinator announces",
			e.Type,
			e.Sender, e.Federation)
	}
	for _, key := range c.trustedKeys() {
		if err = e.VerifyBy(c.cfg.Signatures, key); err == nil {
			return e, nil
		}
	}
	return e, host.NewDropError(devices.DropSignature, "%w: another key has signed an announcement in this federation",
		err)
}

// endRetainedWait ends the wait for the retained announcement. retained is nil if there is none, or if this process has
// made it.
func (c *Coordinator) endRetainedWait(retained *announcementIdentity) {
	f := c.duplicateGuard
	f.awaitsRetainedAnnouncement, f.nextQueryAt = false, time.Time{}
	behind := retained != nil && !f.hasPrecedenceOver(*retained)
	raised := !c.machineStarted && (c.cfg.RaiseEpoch || c.newRunRequested && behind)
	switch {
	case retained != nil && retained.position.Run != f.publishedPosition.position.Run &&
		c.stateFolder.RunStartedFresh &&
		!c.machineStarted && !c.cfg.RaiseEpoch:
		c.stopForLostState(retained.position)
		return
	case raised:
		if c.raiseEpoch(retained); c.stopError != nil {
			return
		}
	case behind:
		c.stopAsOutdated(retained.position)
		return
	}
	c.stateFolder.RunStartedFresh = false
	if !c.machineStarted {
		c.cfg.Observer.Observe(MachineStarted{Epoch: c.stateFolder.Epoch, EpochRaised: raised,
			AggregationRule: c.cfg.Round.Aggregation.Rule,
			ServerOptimizer: c.cfg.Round.ServerOptimizer.Name})
	}
	c.handleConnect()
	held := f.heldMessages
	f.heldMessages, f.heldMessageBytes = nil, 0
	for _, m := range held {
		c.handleMessage(m)
	}
}

// raiseEpoch makes this coordinator's announcements later than all earlier ones. The epoch is on disk, in the first
// record, before the first announcement.
func (c *Coordinator) raiseEpoch(retained *announcementIdentity) {
	before := c.stateFolder.Epoch
	// an older root is behind in any epoch
	if retained != nil && retained.position.Root == c.duplicateGuard.publishedPosition.position.Root {
		before = max(before, retained.position.Epoch)
	}
	if before == math.MaxUint64 {
		c.stopError = &runs.StateError{Path: c.cfg.Dir,
			Problem: "an announcement with this key has the last epoch there " +
				"is, as a thief of the key makes it: no epoch comes after it",
			Remedy: "make the next root document, with another key of the coordinator (docs/OPERATIONS.md), and " +
				"`coordinator root install` it"}
		return
	}
	c.stateFolder.Epoch = before + 1
	c.signer.Epoch = c.stateFolder.Epoch
	c.duplicateGuard.publishedPosition.position.Epoch = c.stateFolder.Epoch
	c.duplicateGuard.confirmedPosition = c.duplicateGuard.publishedPosition
}

// reportForeignAnnouncement reports an announcement of another coordinator that is not later than the own one, and has
// the own one published again. The other coordinator stops when it reads that.
func (c *Coordinator) reportForeignAnnouncement(s announcementIdentity) {
	f, now := c.duplicateGuard, c.ownerLoop.Now()
	c.cfg.Observer.Observe(ForeignAnnouncementSeen{Foreign: s.position, Own: f.publishedPosition.position})
	if f.repeatAt.IsZero() {
		f.repeatAt = f.lastPublishedAt.Add(repeatAgain)
		if f.repeatAt.Before(now) {
			f.repeatAt = now
		}
	}
}

var (
	coordinatorEpoch = observe.OptionalGauge("epoch",
		"Epoch of this coordinator: 1, and one more after each restore or takeover; "+
			"known when the broker has been heard.")
	aggregationRule = observe.GaugeByLabel("aggregation_rule",
		"The rule that makes a round's fold of its updates: 1 for the configured one, 0 for all others.",
		"rule", rule.Names())
	serverOptimizer = observe.GaugeByLabel("server_optimizer",
		"The optimiser that makes the model's step of a fold: 1 for the configured one, 0 for all others.",
		"name", optimizer.Names())
)

// MachineStarted: the broker retains no later announcement, so the coordinator's machine starts.
type MachineStarted struct {
	Epoch wire.Epoch
	// EpochRaised: the epoch was raised at this start. Agents obey a coordinator with a raised epoch even if another
	// coordinator has announced a later round.
	EpochRaised bool
	// the names of round.aggregation.rule and round.server_optimizer
	AggregationRule, ServerOptimizer string
}

// Describe implements observe.Event.
func (e MachineStarted) Describe(d *observe.Description) {
	d.Set(coordinatorEpoch, float64(e.Epoch))
	d.Select(aggregationRule, e.AggregationRule)
	d.Select(serverOptimizer, e.ServerOptimizer)
	d.Log(observe.Info, "rounds begin", "rule", e.AggregationRule, "server_optimizer", e.ServerOptimizer)
	if e.EpochRaised {
		d.Log(observe.Info, "epoch raised", "epoch", e.Epoch)
	}
}

var foreignAnnouncements = observe.Counter("foreign_announcements_total",
	"Announcements signed with this coordinator's key that it has not made: of another coordinator, or "+
		"replayed.")

// ForeignAnnouncementSeen: an announcement signed with this coordinator's key was published that this coordinator has
// not made, and that is not later than its own. Another coordinator runs with the key, or somebody replays an old
// message.
type ForeignAnnouncementSeen struct{ Foreign, Own wire.AnnouncementPosition }

// Describe implements observe.Event. The condition lasts until the process ends, since no event shows that the other
// coordinator has stopped.
func (e ForeignAnnouncementSeen) Describe(d *observe.Description) {
	d.Inc(foreignAnnouncements)
	d.Log(observe.Error, "foreign announcement signed with this coordinator's key", "foreign", e.Foreign, "own", e.Own)
	d.Fail("foreign announcement", "an announcement is signed with this coordinator's key, but this coordinator did "+
		"not make it: another coordinator runs with the key, or somebody replays an old message",
		"stop the other coordinator that runs with identity.key_file and a copy of state_dir")
}
