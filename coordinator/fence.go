package coordinator

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// BehindError is the cause in the StateError of a coordinator that has read an announcement which is signed with its
// own key, later than its own, and not made by it.
type BehindError struct{ Newest, Own wire.Order }

func (e *BehindError) Error() string {
	return fmt.Sprintf("another coordinator runs with this key, or this state folder is an older copy: the newest "+
		"announcement at the broker is %s, this folder stands at %s",
		e.Newest, stands(e.Own))
}

// stands names a folder's place. A place of placeOf between two rounds has the phase of a run that is over, which it is
// not: it is left out.
func stands(o wire.Order) string {
	return strings.TrimSuffix(o.String(), " "+wire.PhaseFinished.String())
}

// fallBehind ends the coordinator. No restart mends it.
func (c *Coordinator) fallBehind(newest wire.Order) {
	behind := &BehindError{Newest: newest, Own: c.fence.place.order}
	c.stopped = &StateError{Path: c.cfg.Dir, Problem: behind.Error(), Err: behind,
		Do: "stop the other coordinator; or, if this folder is to go on, run `coordinator restore` once, or " +
			"`coordinator run --take-over`"}
}

// Reading the round topic after a connect.
const (
	lookAgain = 2 * time.Second // until the broker is asked again
	lookTries = 5               // until the retained announcement is taken for missing
	// heldBytes bounds the messages that wait for it; more are dropped, since what matters is repeated.
	heldBytes = 8 << 20
	// ownKept is how many announcements may be under way back to the coordinator: more than a link has ever queued.
	ownKept = 1024
	// repeatAgain is the least time between two repetitions of the announcement, so that replays cannot multiply it.
	repeatAgain = time.Second
)

// fence keeps two coordinators with one key apart. It reads the round topic, on which nobody else writes. After each
// connect the coordinator does nothing until it has read what is retained there.
type fence struct {
	conn  mqtt.Conn
	topic string

	looking bool
	tries   int
	at      time.Time // of the next try
	held    []mqtt.Message
	bytes   int // of these

	// place is that of the last announcement of this coordinator which the broker may have; confirmed that of the last
	// one which it has returned. Before the first one of this process both are the journal's.
	place, confirmed spot
	shown            spot          // the present announcement
	own              []wire.Digest // the newest that this process has made
	repeatAt         time.Time     // when the announcement is to be published again; zero = it need not
	repeated         time.Time     // when it last was
}

// spot is an announcement's place in time, and its digest; zero for what another process has made.
type spot struct {
	order    wire.Order
	instance uint64
	digest   wire.Digest
}

// placeOf is the place of the newest announcement that may have been made from a record.
func placeOf(epoch wire.Epoch, r round.Record) wire.Order {
	phase := wire.PhaseFinished // also between two rounds: what comes next is of another one
	switch r.Phase {
	case round.CoordinatorGathering:
		phase = wire.PhaseGathering
	case round.CoordinatorCollecting, round.CoordinatorClosing:
		phase = wire.PhaseOpen
	}
	return wire.Order{Root: wire.FirstRoot, Epoch: epoch, Run: r.Run, Round: r.Round, Attempt: r.Attempt, Phase: phase}
}

// look begins to wait for the retained announcement. Nothing may be retained: so an empty message, which agents ignore,
// is sent after the subscription and comes back after whatever is retained.
func (f *fence) look(now time.Time) {
	f.looking, f.tries = true, 0
	f.ask(now)
}

func (f *fence) ask(now time.Time) {
	if f.tries > 0 {
		f.conn.Subscribe(mqtt.AtLeastOnce, f.topic)
	}
	f.tries++
	f.at = now.Add(lookAgain)
	// busy, or down: asked again, or with the next link
	_ = f.conn.Publish(mqtt.Message{Topic: f.topic, QoS: mqtt.AtLeastOnce})
}

// disconnected forgets what was handed to a link and may never have reached the broker.
func (f *fence) disconnected() {
	f.looking, f.at, f.repeatAt = false, time.Time{}, time.Time{}
	f.place = f.confirmed
}

// hold keeps a message until the retained announcement is read. It reports false if there is no room.
func (f *fence) hold(m mqtt.Message) bool {
	if f.bytes+len(m.Payload) > heldBytes {
		return false
	}
	f.held, f.bytes = append(f.held, m), f.bytes+len(m.Payload)
	return true
}

// made tells of an announcement that is about to be published.
func (f *fence) made(s spot) {
	f.shown = s
	f.own = append(f.own, s.digest)
	f.own = f.own[max(0, len(f.own)-ownKept):]
}

// handed tells that the present announcement is with the connection.
func (f *fence) handed(now time.Time) { f.place, f.repeated = f.shown, now }

// returned takes an announcement of this process that came back.
func (f *fence) returned(s spot) {
	if s.order.Compare(f.confirmed.order) > 0 {
		f.confirmed = s
	}
	if s.order.Compare(f.place.order) > 0 {
		f.place = s
	}
}

// leads reports whether this coordinator goes on beside one that has made the other announcement. Of two with the same
// place, both published, the one with the higher instance does, or else (one is a copy of the other's memory) the one
// with the smaller digest: both see both.
func (f *fence) leads(other spot) bool {
	if order := other.order.Compare(f.place.order); order != 0 {
		return order < 0
	}
	return f.place.digest.IsZero() || cmp.Or(cmp.Compare(other.instance, f.place.instance),
		bytes.Compare(f.place.digest[:], other.digest[:])) < 0
}

func (f *fence) deadline() (time.Time, bool) {
	if f.looking {
		return f.at, true
	}
	return f.repeatAt, !f.repeatAt.IsZero()
}

// tickFence asks again for what is retained, and repeats the announcement.
func (c *Coordinator) tickFence(now time.Time) {
	f := c.fence
	switch {
	case f.looking && !now.Before(f.at) && f.tries < lookTries:
		f.ask(now)
	case f.looking && !now.Before(f.at):
		c.cfg.Logger.Warn("the broker returns nothing on the topic of announcements, not even the coordinator's own "+
			"message: another coordinator with this key would not be noticed", "topic", f.topic)
		c.looked(nil)
	case !f.repeatAt.IsZero() && !now.Before(f.repeatAt):
		f.repeatAt = time.Time{}
		c.publisher.repeat(now)
	}
}

// takeRound takes what is on the round topic: an announcement, or the empty message behind the retained one.
func (c *Coordinator) takeRound(m mqtt.Message) error {
	f := c.fence
	if len(m.Payload) == 0 {
		if f.looking {
			c.looked(nil)
		}
		return nil
	}
	e, err := c.openOwn(m.Payload)
	if err != nil {
		return err
	}
	a, err := wire.DecodeAnnouncement(e.Body)
	if err != nil {
		return err
	}
	s := spot{wire.OrderOf(e.Header, &a), a.Instance, e.Digest()}
	own := slices.Contains(f.own, s.digest)
	if own {
		f.returned(s)
	}
	switch {
	case f.looking && own:
		c.looked(nil)
	case f.looking:
		c.looked(&s)
	case own:
	case !f.leads(s):
		c.fallBehind(s.order)
	case !m.Retained: // else the broker's memory may be old
		c.foreign(s)
	}
	return nil
}

// openOwn returns a message that is signed with the coordinator's own key.
func (c *Coordinator) openOwn(p []byte) (wire.Envelope, error) {
	e, err := wire.Open(p)
	switch {
	case err != nil:
		return e, err
	case e.Federation != c.cfg.Federation || e.Sender != wire.CoordinatorID || e.Type != wire.TypeAnnouncement:
		return e, host.Drop(DropForeign, "%s of %s in federation %s, where only this coordinator announces", e.Type,
			e.Sender, e.Federation)
	}
	if err := e.Verify(c.public); err != nil {
		return e, host.Drop(DropSignature, "%w: another key than this coordinator's announces in its federation", err)
	}
	return e, nil
}

// looked ends the wait for the retained announcement, which is another process's, or nil if there is none.
func (c *Coordinator) looked(retained *spot) {
	f := c.fence
	f.looking, f.at = false, time.Time{}
	behind := retained != nil && !f.leads(*retained)
	raised := !c.begun && (c.cfg.TakeOver || c.begins && behind)
	switch {
	case raised:
		c.raiseEpoch(retained)
	case behind:
		c.fallBehind(retained.order)
		return
	}
	if !c.begun {
		c.cfg.Observer.Observe(Began{Epoch: c.disk.epoch, Raised: raised})
	}
	c.connected()
	held := f.held
	f.held, f.bytes = nil, 0
	for _, m := range held {
		c.take(m)
	}
}

// raiseEpoch puts what is announced from now on behind all that was announced before. The first record has it on disk
// before the first announcement.
func (c *Coordinator) raiseEpoch(retained *spot) {
	before := c.disk.epoch
	if retained != nil {
		before = max(before, retained.order.Epoch)
	}
	c.disk.epoch = before + 1
	c.signer.Epoch = c.disk.epoch
	c.fence.place.order.Epoch = c.disk.epoch
	c.fence.confirmed = c.fence.place
}

// foreign tells of an announcement that is not later than the coordinator's own and that it has not made, and has its
// own retained again. The one that made it stops by itself when it reads that.
func (c *Coordinator) foreign(s spot) {
	f, now := c.fence, c.owner.Now()
	c.cfg.Observer.Observe(ForeignAnnouncement{Foreign: s.order, Own: f.place.order})
	if f.repeatAt.IsZero() {
		f.repeatAt = f.repeated.Add(repeatAgain)
		if f.repeatAt.Before(now) {
			f.repeatAt = now
		}
	}
}
