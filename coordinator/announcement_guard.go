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

	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// BehindError is the cause in the StateError of a coordinator that has read an announcement signed with its own key and
// made by another process. The announcement is later than its own, or its state folder had no run.
type BehindError struct{ Newest, Own wire.Order }

func (e *BehindError) Error() string {
	return fmt.Sprintf("another coordinator runs with this key, or this state folder is an older copy: the newest "+
		"announcement at the broker is %s, this folder stands at %s",
		e.Newest, formatPlace(e.Own))
}

// formatPlace formats the place of a folder. Between two rounds placeOf gives the phase of a finished run; it is left
// out, since the run goes on.
func formatPlace(o wire.Order) string {
	return strings.TrimSuffix(o.String(), " "+wire.PhaseFinished.String())
}

// fallBehind ends the coordinator. A restart does not help.
func (c *Coordinator) fallBehind(newest wire.Order) {
	behind := &BehindError{Newest: newest, Own: c.announcementGuard.place.order}
	do := "stop the other coordinator; or, if this folder is to go on, run `coordinator restore` once, or " +
		"`coordinator run --take-over`"
	if newest.Root > c.announcementGuard.place.order.Root {
		do = "give this one the newest root document with `coordinator root install FILE`: devices obey none that " +
			"goes by an older one"
	}
	c.stopped = &StateError{Path: c.cfg.Dir, Problem: behind.Error(), Err: behind, Do: do}
}

// refuseFresh ends a coordinator that has begun a run in an empty state folder, although the broker retains an
// announcement that is signed with its key. The begun run is removed, so that the next start finds the folder as it
// was.
func (c *Coordinator) refuseFresh(retained wire.Order) {
	err := &StateError{Path: c.cfg.Dir, Problem: fmt.Sprintf("the state folder has no run, but the broker retains the "+
		"announcement of a run with this coordinator's key (%s): the state folder was lost, or state_dir is wrong",
		retained), Do: "restore a backup with `coordinator restore BACKUP`, or start over on purpose with " +
		"`coordinator run --new-run`"}
	err.Err = errors.Join(&BehindError{Newest: retained, Own: c.announcementGuard.place.order}, c.disk.run.Clear())
	c.stopped = err
}

// Reading the round topic after a connect.
const (
	lookAgain = 2 * time.Second // until the broker is asked again
	lookTries = 5               // until the retained announcement counts as missing
	// heldBytes bounds the messages held until then; more are dropped, since senders repeat the important ones.
	heldBytes = 8 << 20
	// ownKept is how many own announcements are remembered until they come back: more than a link ever queues.
	ownKept = 1024
	// repeatAgain is the least time between two repetitions of the announcement, so that replays cannot multiply it.
	repeatAgain = time.Second
	// keptFirst is the wait until the broker is asked whether it retains the announcement, and answerFirst until the
	// announcement is published again for want of an answer; each time both double, up to keptMost. A node of a cluster
	// may deliver a message and fail to retain it; whoever connects then gets the announcement before.
	keptFirst   = 2 * time.Second
	answerFirst = 5 * time.Second
	keptMost    = time.Minute
)

// announcementGuard stops one of two coordinators that have the same key. It reads the round topic, which only a
// coordinator writes. After each connect the coordinator waits until it has read the announcement retained there.
type announcementGuard struct {
	conn  mqtt.Conn
	topic string

	looking bool
	tries   int
	at      time.Time // of the next try
	held    []mqtt.Message
	bytes   int // of payload in held

	// place belongs to the last own announcement that the broker may have, confirmed to the last one that it has
	// returned. Before this process announces, both come from the journal.
	place, confirmed position
	shown            position      // the present announcement
	own              []wire.Digest // of the newest announcements of this process
	repeatAt         time.Time     // when to publish the announcement again; zero = never
	repeated         time.Time     // when it was last published
	retention        retention     // whether the broker retains it
	noEcho           bool          // the broker returns no messages over this link, so the guard does not wait for them
}

// retention is the state of the check whether the broker retains the present announcement.
type retention struct {
	at    time.Time // of the next step; zero = the broker retains it, or no answer is possible
	asked bool      // the broker was asked; without an answer, the next step publishes the announcement again
	times uint      // number of times that the announcement was published
}

// wait doubles a wait with each time that the announcement was published.
func (k *retention) wait(first time.Duration) time.Duration {
	return min(first<<min(k.times-1, 10), keptMost)
}

// position is an announcement's place in time, and its digest; the digest is zero for a place from the journal.
type position struct {
	order    wire.Order
	instance uint64
	digest   wire.Digest
}

// stale reports whether a hello to an earlier announcement shows that its agent's node of the broker does not return
// the present one: it was published long enough ago. NATS keeps what it has read for two minutes, also what is old by
// then.
func (f *announcementGuard) stale(now time.Time) bool {
	return f.retention.times > 0 && now.Sub(f.repeated) >= f.retention.wait(keptFirst)
}

// placeOf returns the place of the newest announcement that may have been made from a record.
func placeOf(root wire.Root, epoch wire.Epoch, r round.Record) wire.Order {
	phase := wire.PhaseFinished // also between two rounds: the next announcement is of another round
	switch r.Phase {
	case round.CoordinatorGathering:
		phase = wire.PhaseGathering
	case round.CoordinatorCollecting:
		phase = wire.PhaseOpen
	}
	return wire.Order{Root: root, Epoch: epoch, Run: r.Run, Round: r.Round, Attempt: r.Attempt, Phase: phase}
}

// look begins to wait for the retained announcement. There may be none, so an empty message, which agents ignore, is
// published after the subscription: it comes back after any retained one.
func (f *announcementGuard) look(now time.Time) {
	f.looking, f.tries, f.noEcho = true, 0, false
	f.ask(now)
}

func (f *announcementGuard) ask(now time.Time) {
	if f.tries > 0 {
		f.conn.Subscribe(mqtt.AtMostOnce, f.topic)
	}
	f.tries++
	f.at = now.Add(lookAgain)
	// busy or down: asked again later, or on the next link
	_ = f.conn.Publish(mqtt.Message{Topic: f.topic, QoS: mqtt.AtMostOnce})
}

// disconnected goes back to the last confirmed announcement: later ones may never have reached the broker.
func (f *announcementGuard) disconnected() {
	f.looking, f.at, f.repeatAt, f.retention = false, time.Time{}, time.Time{}, retention{}
	f.place = f.confirmed
}

// hold keeps a message until the retained announcement is read. It reports false if there is no room.
func (f *announcementGuard) hold(m mqtt.Message) bool {
	if f.bytes+len(m.Payload) > heldBytes {
		return false
	}
	f.held, f.bytes = append(f.held, m), f.bytes+len(m.Payload)
	return true
}

// made records an announcement that is about to be published.
func (f *announcementGuard) made(s position) {
	f.shown, f.retention = s, retention{}
	f.own = append(f.own, s.digest)
	f.own = f.own[max(0, len(f.own)-ownKept):]
}

// handed records that the connection has taken the present announcement.
func (f *announcementGuard) handed(now time.Time) {
	f.place, f.repeated = f.shown, now
	f.retention = retention{times: f.retention.times + 1}
	if !f.noEcho {
		f.retention.at = now.Add(f.retention.wait(keptFirst))
	}
}

// returned records that an announcement of this process came back from the broker, which retains it or delivers it.
func (f *announcementGuard) returned(now time.Time, s position, retained bool) {
	switch {
	case !retained:
	case s.digest == f.shown.digest:
		f.retention = retention{times: f.retention.times}
	case f.retention.asked:
		f.retention.at = now // it retains an earlier one
	}
	if s.order.Compare(f.confirmed.order) > 0 {
		f.confirmed = s
	}
	if s.order.Compare(f.place.order) > 0 {
		f.place = s
	}
}

// overwritten records that somebody else has published on the topic: whether the broker still retains the present
// announcement is checked again.
func (f *announcementGuard) overwritten(now time.Time, retained bool) {
	switch {
	case f.noEcho || f.retention.times == 0: // the broker returns no messages, or has none over this link
	case f.retention.asked && retained:
		f.retention.at = now
	case f.retention.at.IsZero():
		f.retention.at = now.Add(f.retention.wait(keptFirst))
	}
}

// leads reports whether this coordinator goes on although another one has made the announcement other. At equal places
// the higher instance wins, or at equal instances (a copy of a process's memory) the smaller digest; both coordinators
// read both announcements, so exactly one goes on.
func (f *announcementGuard) leads(other position) bool {
	if order := other.order.Compare(f.place.order); order != 0 {
		return order < 0
	}
	return f.place.digest.IsZero() || cmp.Or(cmp.Compare(other.instance, f.place.instance),
		bytes.Compare(f.place.digest[:], other.digest[:])) < 0
}

func (f *announcementGuard) deadline() (time.Time, bool) {
	if f.looking {
		return f.at, true
	}
	at := f.repeatAt
	if at.IsZero() || !f.retention.at.IsZero() && f.retention.at.Before(at) {
		at = f.retention.at
	}
	return at, !at.IsZero()
}

// tickGuard asks again for the retained announcement, and repeats the own one when it is due.
func (c *Coordinator) tickGuard(now time.Time) {
	f := c.announcementGuard
	switch {
	case f.looking && !now.Before(f.at) && f.tries < lookTries:
		f.ask(now)
	case f.looking && !now.Before(f.at):
		c.cfg.Logger.Warn("the broker returns nothing on the topic of announcements, not even the coordinator's own "+
			"message: another coordinator with this key would not be noticed", "topic", f.topic)
		f.noEcho = true
		c.looked(nil)
	case f.retention.at.IsZero() || now.Before(f.retention.at):
		if !f.repeatAt.IsZero() && !now.Before(f.repeatAt) {
			c.repeatAnnouncement(now)
		}
	case f.retention.asked:
		c.repeatAnnouncement(now)
	default:
		f.retention.asked, f.retention.at = true, now.Add(f.retention.wait(answerFirst))
		f.conn.Subscribe(mqtt.AtMostOnce, f.topic)
	}
}

// repeatAnnouncement publishes the present announcement again. The next wait begins when the connection has taken it.
func (c *Coordinator) repeatAnnouncement(now time.Time) {
	c.announcementGuard.repeatAt, c.announcementGuard.retention.at = time.Time{}, time.Time{}
	c.publisher.repeat(now)
}

// takeRound takes a message on the round topic: an announcement, or the empty message that look has published.
func (c *Coordinator) takeRound(m mqtt.Message) error {
	f := c.announcementGuard
	if len(m.Payload) == 0 {
		if f.looking {
			c.looked(nil)
		} else {
			f.overwritten(c.owner.Now(), m.Retained)
		}
		return nil
	}
	if bytes.Equal(m.Payload, c.publisher.sealed) { // the present one, signed here
		f.returned(c.owner.Now(), f.shown, m.Retained)
		if f.looking {
			c.looked(nil)
		}
		return nil
	}
	e, err := c.openOwn(m.Payload)
	var a wire.Announcement
	if err == nil {
		a, err = wire.DecodeAnnouncement(e.Body)
	}
	if err != nil {
		f.overwritten(c.owner.Now(), m.Retained)
		return err
	}
	c.issued = max(c.issued, a.Issued)
	s := position{wire.OrderOf(e.Header, &a), a.Instance, e.Digest()}
	own := slices.Contains(f.own, s.digest)
	if own {
		f.returned(c.owner.Now(), s, m.Retained)
	}
	switch {
	case f.looking && own:
		c.looked(nil)
	case f.looking:
		c.looked(&s)
	case own:
	case !f.leads(s):
		c.fallBehind(s.order)
	case !m.Retained: // a retained one may be old
		c.foreign(s)
	}
	return nil
}

// openOwn opens an announcement, which must be signed with the coordinator's own key, or one that counts beside it.
func (c *Coordinator) openOwn(p []byte) (wire.Envelope, error) {
	e, err := wire.Open(p)
	switch {
	case err != nil:
		return e, err
	case e.Federation != c.cfg.Federation || e.Sender != wire.CoordinatorID || e.Type != wire.TypeAnnouncement:
		return e, host.Drop(DropForeign, "%s of %s in federation %s, where only this coordinator announces", e.Type,
			e.Sender, e.Federation)
	}
	for _, key := range c.trusted() {
		if err = e.VerifyBy(c.cfg.Signatures, key); err == nil {
			return e, nil
		}
	}
	return e, host.Drop(DropSignature, "%w: another key has signed an announcement in this federation", err)
}

// looked ends the wait for the retained announcement. retained is nil if there is none, or if this process has made it.
func (c *Coordinator) looked(retained *position) {
	f := c.announcementGuard
	f.looking, f.at = false, time.Time{}
	behind := retained != nil && !f.leads(*retained)
	raised := !c.begun && (c.cfg.TakeOver || c.begins && behind)
	switch {
	case retained != nil && retained.order.Run != f.place.order.Run && c.disk.fresh && !c.begun && !c.cfg.TakeOver:
		c.refuseFresh(retained.order)
		return
	case raised:
		if c.raiseEpoch(retained); c.stopped != nil {
			return
		}
	case behind:
		c.fallBehind(retained.order)
		return
	}
	c.disk.fresh = false
	if !c.begun {
		c.cfg.Observer.Observe(Began{Epoch: c.disk.epoch, Raised: raised, Rule: c.cfg.Round.Aggregation.Rule,
			ServerOptimizer: c.cfg.Round.ServerOptimizer.Name})
	}
	c.connected()
	held := f.held
	f.held, f.bytes = nil, 0
	for _, m := range held {
		c.take(m)
	}
}

// raiseEpoch makes this coordinator's announcements later than all earlier ones. The epoch is on disk, in the first
// record, before the first announcement.
func (c *Coordinator) raiseEpoch(retained *position) {
	before := c.disk.epoch
	// an older root is behind in any epoch
	if retained != nil && retained.order.Root == c.announcementGuard.place.order.Root {
		before = max(before, retained.order.Epoch)
	}
	if before == math.MaxUint64 {
		c.stopped = &StateError{Path: c.cfg.Dir, Problem: "an announcement with this key has the last epoch there " +
			"is, as a thief of the key makes it: no epoch comes after it",
			Do: "make the next root document, with another key of the coordinator (docs/OPERATIONS.md), and " +
				"`coordinator root install` it"}
		return
	}
	c.disk.epoch = before + 1
	c.signer.Epoch = c.disk.epoch
	c.announcementGuard.place.order.Epoch = c.disk.epoch
	c.announcementGuard.confirmed = c.announcementGuard.place
}

// foreign reports an announcement of another coordinator that is not later than the own one, and has the own one
// published again. The other coordinator stops when it reads that.
func (c *Coordinator) foreign(s position) {
	f, now := c.announcementGuard, c.owner.Now()
	c.cfg.Observer.Observe(ForeignAnnouncement{Foreign: s.order, Own: f.place.order})
	if f.repeatAt.IsZero() {
		f.repeatAt = f.repeated.Add(repeatAgain)
		if f.repeatAt.Before(now) {
			f.repeatAt = now
		}
	}
}
