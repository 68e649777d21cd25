package coordinator

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/mqtt/transfer"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// Coordinator is the parameter server of one federation.
type Coordinator struct {
	cfg     Config
	conn    mqtt.Conn
	machine *round.Coordinator
	voice   *voice
	disk    *disk
	board   *board // what is retained at the broker
	fence   *fence // against another coordinator with this key
	public  ed25519.PublicKey
	work    *workbench
	test    *mqtt.SelfTest // nil if there is none

	runID     wire.RunID
	up        bool
	refused   mqtt.RefusedFilters // but for what the board reads back
	begins    bool                // a new run was asked for, and has not been announced
	begun     bool                // the machine has started
	stopped   error               // why the coordinator cannot go on
	ahead     ahead
	receiver  *transfer.Receiver
	transfers TransfersChanged
	spools    map[wire.RoundID]*store.Spool // of the round under way; two between rounds
	heard     map[sourceKey]mark            // newest message by sender and type
	twins     map[wire.AgentID]*twins       // of those who spoke
	offers    map[wire.AgentID]*round.Offer // being received, or stored
	early     []Fact                        // facts from before Run

	trouble  store.Trouble
	unstored bool // an update could not be stored, and none has been since

	events  []round.Event // the one that the machine takes, and those that wait for it
	results chan func()   // what jobs bring back, run by the owner
	pings   chan struct{} // who sends has been heard by the owner
	lists   chan map[wire.AgentID]ed25519.PublicKey
	jobs    sync.WaitGroup
	ctx     context.Context
}

// New makes a coordinator that speaks over the connection. It takes up the run
// that the folder holds, or begins one.
func New(cfg Config, conn mqtt.Conn) (*Coordinator, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("coordinator: %w", err)
	}
	c := &Coordinator{
		cfg: cfg, conn: conn, voice: &voice{cfg: &cfg}, public: cfg.Key.Public().(ed25519.PublicKey), ahead: ahead{agents: map[wire.AgentID]bool{}},
		spools: map[wire.RoundID]*store.Spool{}, heard: map[sourceKey]mark{}, twins: map[wire.AgentID]*twins{}, offers: map[wire.AgentID]*round.Offer{},
		results: make(chan func()), pings: make(chan struct{}), lists: make(chan map[wire.AgentID]ed25519.PublicKey),
	}
	if cfg.SelfTest > 0 {
		c.test = mqtt.NewSelfTest(conn, cfg.Topics.Loop(wire.CoordinatorID), cfg.SelfTest, cfg.Rand)
	}
	var err error
	if c.disk, err = openDisk(cfg.Dir); err != nil {
		return nil, err
	}
	c.fence = &fence{conn: conn, topic: cfg.Topics.Round()}
	c.board = &board{
		conn: conn, topics: cfg.Topics, rng: cfg.Rand, listed: c.disk.loadPublished(cfg.Logger),
		tell: func(f BlobChecked) { cfg.Observer.Observe(f) }, handed: c.fence.handed,
	}
	if err := c.takeUp(); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// takeUp makes the machine and what it works with from the folder. Nobody
// waits here for a full disk: who starts a coordinator should see the error.
func (c *Coordinator) takeUp() error {
	c.work = &workbench{cfg: &c.cfg, disk: c.disk, persist: func(_ string, write func() error) error { return write() }}
	record, err := c.resume()
	if err != nil {
		return err
	}
	c.runID, c.voice.epoch = record.Run, c.disk.epoch
	receiving := transfer.DefaultReceiverConfig()
	receiving.MaxUpdate = max(c.work.problem.Schema(wire.KindTraining).Bytes(), c.work.problem.Schema(wire.KindStatistics).Bytes())
	receiving.MaxBuffered = max(c.cfg.MaxBuffered, receiving.MaxUpdate)
	c.receiver = transfer.NewReceiver(receiving)
	spooled, err := c.openSpoolOf(record)
	c.machine = round.NewCoordinator(c.cfg.Round, record, spooled)
	c.fence.place.order = placeOf(c.disk.epoch, record)
	c.fence.confirmed = c.fence.place
	return err
}

// tellLater keeps a fact for the observer, who hears none before Run.
func (c *Coordinator) tellLater(fact Fact) { c.early = append(c.early, fact) }

// Run works until ctx ends. The error is nil unless the coordinator could not go on: it wraps a *BehindError when another
// one is further.
func (c *Coordinator) Run(ctx context.Context) error {
	inner, cancel := context.WithCancel(ctx)
	c.ctx = inner
	c.work.persist = c.besideDone
	defer c.close()
	defer c.jobs.Wait()
	defer cancel()
	c.conn.Subscribe(mqtt.AtLeastOnce, c.cfg.Topics.Round()) // the rest when the machine starts
	c.cfg.Observer.Observe(listed(c.cfg.Agents))
	for _, f := range c.early {
		c.cfg.Observer.Observe(f)
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	events := c.conn.Events()
	for {
		select {
		case <-ctx.Done():
			return c.conn.Close()
		case e, ok := <-events:
			if !ok {
				return fmt.Errorf("coordinator: the connection was closed")
			}
			c.hear(e)
		case result := <-c.results:
			if ctx.Err() == nil { // else the job may have been cut short
				result()
			}
		case <-c.pings:
		case keys := <-c.lists:
			c.setAgents(keys)
		case <-timer.C:
			c.tick(time.Now())
		}
		if c.stopped != nil {
			return errors.Join(fmt.Errorf("coordinator: %w", c.stopped), c.conn.Close())
		}
		c.board.pump(time.Now())
		timer.Reset(time.Until(c.deadline()))
	}
}

// Alive returns nil once the owner's goroutine has been met: it works, or
// waits for room on a disk, and does not hang. The error is that it has not
// been met before ctx ended. It may be called from any goroutine.
func (c *Coordinator) Alive(ctx context.Context) error {
	select {
	case c.pings <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("coordinator: no sign of life: %w", ctx.Err())
	}
}

// SetAgents replaces the list of who may take part, from the next message on.
// Those that are no longer in it leave at once, with what they are at; a device that takes the place of another, with a key of
// its own, is heard from its first start on. The error is that the owner's goroutine has not been met before ctx ended.
func (c *Coordinator) SetAgents(ctx context.Context, keys map[wire.AgentID]ed25519.PublicKey) error {
	select {
	case c.lists <- keys:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("coordinator: the list of agents was not taken: %w", ctx.Err())
	}
}

// setAgents takes a new list. Who has another key than before is another device, whose starts and words count anew.
func (c *Coordinator) setAgents(keys map[wire.AgentID]ed25519.PublicKey) {
	changed := func(a wire.AgentID) bool { return !keys[a].Equal(c.cfg.Agents[a]) }
	maps.DeleteFunc(c.heard, func(s sourceKey, _ mark) bool { return changed(s.agent) })
	maps.DeleteFunc(c.twins, func(a wire.AgentID, _ *twins) bool { return changed(a) })
	var gone []wire.AgentID
	for a := range c.cfg.Agents {
		if changed(a) {
			gone = append(gone, a)
			c.forgetAhead(a)
		}
	}
	c.cfg.Agents = keys
	c.revoke(gone)
	c.cfg.Observer.Observe(listed(keys))
}

func (c *Coordinator) revoke(agents []wire.AgentID) {
	if len(agents) > 0 && c.begun {
		c.step(round.Revoked{Agents: agents})
	}
}

// strangers returns the participants of the journaled round that were taken off the list while no coordinator ran.
func (c *Coordinator) strangers() (gone []wire.AgentID) {
	for _, p := range c.machine.Record().Participants {
		if c.cfg.Agents[p.Agent] == nil {
			gone = append(gone, p.Agent)
		}
	}
	return gone
}

func listed(keys map[wire.AgentID]ed25519.PublicKey) AgentsListed {
	return AgentsListed{slices.Sorted(maps.Keys(keys))}
}

func (c *Coordinator) close() {
	c.board.halt()
	for r, s := range c.spools {
		if err := s.Close(); err != nil {
			c.cfg.Logger.Warn("closing the spool", "round", r, "err", err)
		}
	}
	if err := c.disk.close(); err != nil {
		c.cfg.Logger.Error("cannot close the history", "err", err)
	}
}

// present is the round of the present announcement, 0 before there is one.
func (c *Coordinator) present() wire.RoundID { return c.fence.shown.order.Round }

// deadline returns when something wants a tick: an hour away if nothing does.
func (c *Coordinator) deadline() time.Time {
	at := time.Now().Add(time.Hour)
	deadlines := []func() (time.Time, bool){c.machine.Deadline, c.receiver.Deadline, c.board.deadline, c.fence.deadline}
	if c.test != nil {
		deadlines = append(deadlines, c.test.Deadline)
	}
	for _, d := range deadlines {
		if t, ok := d(); ok && t.Before(at) {
			at = t
		}
	}
	return at
}

func (c *Coordinator) tick(now time.Time) {
	if c.begun {
		c.step(round.Tick{})
	}
	c.receive(transfer.Tick{})
	c.tickSelfTest()
	c.tickFence(now)
}

// connected goes to work on a link on which nothing speaks against it, the first time from where the journal stands.
func (c *Coordinator) connected() {
	if !c.begun {
		c.begun = true
		c.conn.Subscribe(mqtt.AtLeastOnce, c.cfg.Topics.Updates(), c.cfg.Topics.Presences(), c.cfg.Topics.Statuses())
		c.step(round.Start{})
		c.revoke(c.strangers())
	}
	c.up = true
	c.step(round.LinkUp{}) // its acceptances are said before an announcement that ends the round for those agents
	c.board.connected(time.Now())
}

// hear takes what the connection tells.
func (c *Coordinator) hear(e mqtt.Event) {
	if c.selfTest(e) {
		return
	}
	switch e := e.(type) {
	case mqtt.Up:
		c.cfg.Observer.Observe(LinkChanged{Up: true})
		c.fence.look(time.Now())
	case mqtt.Down:
		c.fence.disconnected()
		c.board.disconnected()
		c.cfg.Observer.Observe(LinkChanged{Err: e.Err})
		c.hearRefusal(e)
		if c.up {
			c.up = false
			c.step(round.LinkDown{})
		}
	case mqtt.SubscribeRefused:
		if !c.board.refused(time.Now(), e.Filter) {
			c.hearRefusal(e)
		}
	case mqtt.RefusalOver:
		c.hearRefusal(e)
	case mqtt.Received:
		c.take(e.Message)
	}
}

// hearRefusal takes note of what the broker refuses, and no longer refuses.
func (c *Coordinator) hearRefusal(e mqtt.Event) {
	if c.refused.Step(e) {
		c.cfg.Observer.Observe(SubscriptionsRefused{c.refused.List()})
	}
}

// step gives the machine an event and does what it asks for. An event that
// comes of an effect waits until the effects before it are all done. When the
// coordinator stops while something that must be on disk is not, nothing after
// it is done.
func (c *Coordinator) step(ev round.Event) {
	c.events = append(c.events, ev)
	if len(c.events) > 1 {
		return
	}
	for len(c.events) > 0 {
		for _, e := range c.machine.Step(time.Now(), c.events[0]) {
			if !c.perform(e) {
				return
			}
		}
		c.events = c.events[1:]
	}
}

// start runs work beside the owner, and then what it returns in the owner's
// goroutine.
func (c *Coordinator) start(work func() func()) {
	c.jobs.Go(func() { c.beside(work()) })
}

// beside has the owner do something, unless the coordinator stops.
func (c *Coordinator) beside(result func()) {
	select {
	case c.results <- result:
	case <-c.ctx.Done():
	}
}
