package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/coordinator/aggregation"
	"github.com/fedmesh/fedmesh/coordinator/cleanup"
	"github.com/fedmesh/fedmesh/coordinator/devices"
	"github.com/fedmesh/fedmesh/coordinator/duplicate"
	"github.com/fedmesh/fedmesh/coordinator/enrolled"
	"github.com/fedmesh/fedmesh/coordinator/publish"
	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/coordinator/sealing"
	"github.com/fedmesh/fedmesh/coordinator/uploads"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// Coordinator is the parameter server of one federation.
type Coordinator struct {
	cfg              Config
	conn             mqtt.Conn
	machine          *round.Coordinator
	signer           *host.Signer
	devices          *devices.Devices
	stateFolder      *runs.Folder
	background       backgroundJobs
	lastRoundOutcome publish.Blob       // of the round that ended last; empty before one has
	rolloutFiles     []publish.Blob     // the files of the models that are rolled out
	publisher        *publish.Publisher // what is retained at the broker
	guard            *duplicate.Guard   // against another coordinator with this key
	cleanup          *cleanup.Cleanup
	aggregator       *aggregation.Aggregator
	modelShape       modelShape
	brokerSelfTest   *mqtt.SelfTest // nil if there is none

	runID              wire.RunID
	linkUp             bool
	refusedFilters     mqtt.RefusedFilters // but for what the publisher reads back
	stopError          error               // why the coordinator cannot go on
	stopsBetweenRounds bool                // between two rounds
	uploads            *uploads.Uploads
	keyring            *sealing.Keyring
	eventsBeforeRun    []observe.Event // events from before Run

	latestMeshJob *meshJob // the last edges that were asked for; nil if there are none
	writeFailures store.WriteFailures

	ownerLoop          *host.EventLoop
	signatureCheckPool *host.TaskPool // of signatures
	events             host.EventQueue[round.Event]
}

// New makes a coordinator that speaks over the connection. It takes up the run
// that the folder holds, or begins one.
func New(cfg Config, conn mqtt.Conn) (*Coordinator, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("coordinator: %w", err)
	}
	if cfg.Disk.FS == nil {
		cfg.Disk = store.Machine
	}
	if cfg.Signatures == nil {
		cfg.Signatures = wire.Ed25519{}
	}
	instance := cfg.Rand.Uint64()
	c := &Coordinator{
		cfg: cfg, conn: conn, ownerLoop: host.NewEventLoop(cfg.Runtime),
		signer: &host.Signer{Federation: cfg.Federation, Sender: wire.CoordinatorID, Key: cfg.Key,
			Signatures: cfg.Signatures},
	}
	c.devices = devices.New(cfg.Agents, devices.Config{Now: c.ownerLoop.Now, Topics: cfg.Topics, Observer: cfg.Observer,
		Logger: cfg.Logger, Send: func(agent wire.AgentID, t wire.MessageType, body []byte) {
			c.sendToAgent(agent, t, 0, 0, body)
		}})
	c.signatureCheckPool = host.NewTaskPool(c.ownerLoop)
	if cfg.SelfTestTimeout > 0 {
		c.brokerSelfTest = mqtt.NewSelfTest(conn, cfg.Topics.SelfTest(wire.CoordinatorID), cfg.SelfTestTimeout,
			cfg.Rand)
	}
	c.background.writeJobs, c.background.removalJobs = host.NewSerialQueue(c.ownerLoop),
		host.NewSerialQueue(c.ownerLoop)
	var err error
	if c.stateFolder, err = runs.OpenFolder(cfg.Disk, cfg.Dir); err != nil {
		return nil, err
	}
	c.stateFolder.Audit = cfg.Audit
	if cfg.FolderReplicator != nil {
		c.stateFolder.MinEpoch = cfg.FolderReplicator.Epoch()
		c.stateFolder.Epoch = max(c.stateFolder.Epoch, c.stateFolder.MinEpoch)
	}
	c.guard = duplicate.New(duplicate.Config{Conn: conn, Topic: cfg.Topics.Announcement(), Folder: c.stateFolder,
		Instance: instance, RaiseEpoch: cfg.RaiseEpoch, Open: c.openAnnouncement, Observer: cfg.Observer,
		Logger:    cfg.Logger,
		IsPresent: func(envelope []byte) bool { return c.publisher.IsPresent(envelope) },
		Repeat:    func(now time.Time) { c.publisher.Repeat(now) }})
	c.cleanup = cleanup.New(cleanup.Config{Conn: conn, Topics: cfg.Topics, Observer: cfg.Observer,
		Filters:  c.filters(),
		IsListed: func(agent wire.AgentID) bool { return c.devices.Key(agent) != nil }})
	c.publisher = publish.New(conn, cfg.Topics, cfg.Rand, cfg.Observer, c.handleAnnouncementSent)
	if warning := cfg.Round.Aggregation.Warning(cfg.Round.Participants); warning != "" {
		cfg.Logger.Warn(warning)
	}
	if err := c.loadState(); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// loadState makes the machine and what it works with from the folder. Nobody
// waits here for a full disk: who starts a coordinator should see the error.
func (c *Coordinator) loadState() error {
	c.aggregator = aggregation.New(aggregation.Config{Round: c.cfg.Round, Task: c.cfg.Task,
		Standardize: c.cfg.Standardize,
		FeatureClip: c.cfg.FeatureClip, RestandardizeVersions: c.cfg.RestandardizeVersions,
		HeldOutSource: c.cfg.HeldOutSource, InitialModelPath: c.cfg.InitialModelPath, Logger: c.cfg.Logger},
		c.stateFolder, c.ownerLoop.Now)
	record, newRun, err := c.resumeRun()
	if err != nil {
		return err
	}
	if err := c.resumeRollout(&record); err != nil {
		return err
	}
	c.runID, c.signer.Epoch = record.Run, c.stateFolder.Epoch
	c.signer.SetRootVersion(c.cfg.rootVersion())
	if c.keyring, err = sealing.Load(sealing.Config{Key: c.cfg.Key, Folder: c.stateFolder, FillRandom: c.cfg.FillRandom,
		PublicKey: c.devices.Key, Logger: c.cfg.Logger}, c.devices.List()); err != nil {
		return err
	}
	c.uploads = uploads.New(uploads.Config{Loop: c.ownerLoop, Folder: c.stateFolder, Observer: c.cfg.Observer,
		Logger: c.cfg.Logger, MaxBufferedBytes: c.cfg.MaxBufferedUpdateBytes, MaxNorm: c.cfg.MaxNorm,
		RemovalJobs: c.background.removalJobs, Step: c.stepMachine, ReportWrite: c.reportWriteResult,
		SendCredit: func(agent wire.AgentID, credit []byte) {
			c.sendToAgent(agent, wire.TypeCredit, c.runID, c.currentRound(), credit)
		}}, max(c.aggregator.Task().Schema(wire.KindTraining).Bytes(),
		c.aggregator.Task().Schema(wire.KindStatistics).Bytes()))
	c.publisher.Restore(c.stateFolder.PublishedBlobs)
	var spooled map[wire.AgentID]round.SpooledUpdate
	spool, err := c.uploads.Recover(&record)
	if spool != nil {
		spooled, err = c.aggregator.SpooledUpdates(spool, record.Plan.Kind)
	}
	c.cfg.Round.Gather.Respond.ListedAgents = c.devices.List().Len()
	c.machine = round.NewCoordinator(c.cfg.Round, record, spooled)
	c.guard.Restore(runs.PositionOfRecord(c.cfg.rootVersion(), c.stateFolder.Epoch, record), newRun)
	return err
}

// queueEvent keeps an event for the observer until Run begins.
func (c *Coordinator) queueEvent(event observe.Event) {
	c.eventsBeforeRun = append(c.eventsBeforeRun, event)
}

// Run works until ctx ends. The error is nil unless the coordinator could not go on: it wraps a
// *OutdatedCoordinatorError when another one is further.
func (c *Coordinator) Run(ctx context.Context) error {
	c.ownerLoop.AllowJobs(ctx)
	c.aggregator.RetryWrite = c.retryWriteInBackground
	defer c.close()
	defer c.ownerLoop.CancelAndAwaitJobs()
	c.conn.Subscribe(mqtt.AtMostOnce, c.cfg.Topics.Announcement()) // the rest when the machine starts
	c.cfg.Observer.Observe(AgentListChanged{ListedAgents: c.devices.List().Len()})
	for _, f := range c.eventsBeforeRun {
		c.cfg.Observer.Observe(f)
	}
	err := c.ownerLoop.Run(ctx, c.conn.Events(),
		host.LoopHandlers{BeforeWait: c.beforeEachWait, OnEvent: c.handleConnEvent, OnDeadline: c.tick,
			Deadline: c.nextTickAt})
	if err != nil {
		err = fmt.Errorf("coordinator: %w", err)
	}
	return errors.Join(err, c.conn.Close())
}

// beforeEachWait comes before each wait. The error is why the coordinator cannot go on.
func (c *Coordinator) beforeEachWait() error {
	c.reportWriteResults()
	if c.stopError != nil {
		return c.stopError
	}
	c.publisher.BeforeWait(c.ownerLoop.Now())
	return c.stopErrorBetweenRounds()
}

// Alive returns nil once the owner's goroutine has been met: it works, or
// waits for room on a disk, and does not hang. The error is that it has not
// been met before ctx ended. It may be called from any goroutine.
func (c *Coordinator) Alive(ctx context.Context) error {
	if err := c.ownerLoop.CheckAlive(ctx); err != nil {
		return fmt.Errorf("coordinator: %w", err)
	}
	return nil
}

// SetAgents replaces the list of who may take part, from the next message on, and owns it then.
// Those that are no longer in it leave at once, with what they are at; a device that takes the place of another, with a
// key of its own, is heard from its first start on. The error is that the owner's goroutine has not been met before ctx
// ended.
func (c *Coordinator) SetAgents(ctx context.Context, list *enrolled.List) error {
	if err := c.ownerLoop.RunOnLoopContext(ctx, func() { c.setAgents(list) }); err != nil {
		return fmt.Errorf("coordinator: the list of agents was not taken: %w", errors.Join(err, list.Close()))
	}
	return nil
}

// setAgents replaces the list. An agent with another key than before is another device: its starts and messages count
// from the beginning.
func (c *Coordinator) setAgents(list *enrolled.List) {
	before, gone := c.devices.Replace(list, c.knownAgents())
	c.keyring.ListChanged(list, before)
	if err := before.Close(); err != nil {
		c.cfg.Logger.Warn("closing the former list of agents", "err", err)
	}
	c.devices.RejectRemoved(gone)
	c.forgetAgents(gone)
	c.cfg.Observer.Observe(AgentListChanged{ListedAgents: list.Len(), RemovedAgents: gone})
}

// ResetBootCounter has the counter of an agent's starts begin anew, as when its state folder was lost: it is heard from
// its next message on, whatever it said before. The error is that it is not in the list, ErrUnlisted, or that the
// owner's goroutine has not been met before ctx ended.
func (c *Coordinator) ResetBootCounter(ctx context.Context, agent wire.AgentID) error {
	unlisted := false
	err := c.runOnOwner(ctx, func() {
		if unlisted = c.devices.Key(agent) == nil; !unlisted {
			c.forgetAgents([]wire.AgentID{agent})
		}
	})
	if err == nil && unlisted {
		err = fmt.Errorf("agent %s is %w", agent, ErrUnlisted)
	}
	return err
}

// forgetAgents forgets what agents, in id order, have said. They leave what they are at.
func (c *Coordinator) forgetAgents(agents []wire.AgentID) {
	c.devices.Forget(agents)
	for _, a := range agents {
		c.keyring.Forget(a)
		c.guard.ForgetAgent(a)
	}
	c.revoke(agents)
}

// knownAgents returns the agents that are ahead, take part in the present round, or sit out.
func (c *Coordinator) knownAgents() []wire.AgentID {
	all := slices.Collect(c.guard.AheadAgents())
	r := c.machine.Record()
	for _, p := range r.Participants {
		all = append(all, p.Agent)
	}
	for _, s := range r.Sidelined {
		all = append(all, s.Agent)
	}
	return all
}

func (c *Coordinator) revoke(agents []wire.AgentID) {
	if len(agents) > 0 && c.guard.Passed() {
		c.stepMachine(round.AgentsRevoked{Agents: agents})
	}
}

// delistedParticipants returns the participants of the journaled round that were taken off the list while no
// coordinator ran.
func (c *Coordinator) delistedParticipants() (gone []wire.AgentID) {
	for _, p := range c.machine.Record().Participants {
		if c.devices.Key(p.Agent) == nil {
			gone = append(gone, p.Agent)
		}
	}
	return gone
}

func (c *Coordinator) close() {
	c.publisher.Halt()
	if c.uploads != nil {
		c.uploads.Close()
	}
	if err := c.devices.List().Close(); err != nil {
		c.cfg.Logger.Warn("closing the list of agents", "err", err)
	}
	if err := c.stateFolder.Close(); err != nil {
		c.cfg.Logger.Error("cannot close the history", "err", err)
	}
}

// currentRound returns the round of the present announcement; 0 before the first.
func (c *Coordinator) currentRound() wire.RoundID { return c.guard.Present().Round }

// nextTickAt returns when something wants a tick: an hour away if nothing does.
func (c *Coordinator) nextTickAt() time.Time {
	at := c.ownerLoop.Now().Add(time.Hour)
	for _, d := range []func() (time.Time, bool){c.machine.Deadline, c.uploads.Deadline, c.publisher.Deadline,
		c.guard.Deadline, c.cleanup.Deadline, c.brokerSelfTest.Deadline} {
		if t, ok := d(); ok && t.Before(at) {
			at = t
		}
	}
	return at
}

func (c *Coordinator) tick(now time.Time) {
	if c.guard.Passed() {
		c.stepMachine(round.Tick{})
	}
	c.uploads.Tick()
	c.reportSelfTestOutcome(c.brokerSelfTest.Tick(now))
	c.actOn(c.guard.Tick(now))
	c.cleanup.Tick(now)
}

// actOn stops the coordinator if another one with this key is further, or begins to work over a link. The first time it
// starts the machine, from the journal.
func (c *Coordinator) actOn(f duplicate.Finding) {
	if f.Stop != nil {
		c.stopError = f.Stop
	}
	if !f.MayWork {
		return
	}
	if f.First {
		c.signer.Epoch = c.stateFolder.Epoch
		c.cfg.Observer.Observe(MachineStarted{Epoch: c.stateFolder.Epoch, EpochRaised: f.EpochRaised,
			AggregationRule: c.cfg.Round.Aggregation.Rule, ServerOptimizer: c.cfg.Round.ServerOptimizer.Name})
		c.conn.Subscribe(mqtt.AtMostOnce, c.filters()...)
		c.stepMachine(round.Start{})
		c.revoke(c.delistedParticipants())
	}
	c.linkUp = true
	c.publishRoots()
	// the machine sends its acceptances before an announcement that ends the round for those agents
	c.stepMachine(round.LinkUp{})
	c.publisher.LinkUp(c.ownerLoop.Now())
	c.cleanup.LinkUp(c.ownerLoop.Now())
	for _, m := range f.Held {
		c.handleMessage(m)
	}
}

// filters are of what agents send.
func (c *Coordinator) filters() []string {
	return []string{c.cfg.Topics.UpdatesFilter(), c.cfg.Topics.PresencesFilter(), c.cfg.Topics.StatusesFilter()}
}

// handleConnEvent takes what the connection tells.
func (c *Coordinator) handleConnEvent(e mqtt.Event) {
	own, ended := c.brokerSelfTest.Step(c.ownerLoop.Now(), e)
	if c.reportSelfTestOutcome(ended); own {
		return
	}
	switch e := e.(type) {
	case mqtt.LinkUp:
		c.reportLink(true, nil)
		c.guard.LinkUp(c.ownerLoop.Now())
	case mqtt.LinkDown:
		c.guard.LinkDown()
		c.publisher.LinkDown()
		c.cleanup.LinkDown(c.ownerLoop.Now())
		c.reportLink(false, e.Err)
		c.noteRefusedFilters(e)
		if c.linkUp {
			c.linkUp = false
			c.stepMachine(round.LinkDown{})
		}
	case mqtt.SubscribeRefused:
		if !c.publisher.FilterRefused(c.ownerLoop.Now(), e.Filter) {
			c.noteRefusedFilters(e)
		}
	case mqtt.RefusalOver:
		c.noteRefusedFilters(e)
	case mqtt.Received:
		c.handleMessage(e.Message)
	}
}

// reportLink reports that the connection to the broker is up, or down because of err.
func (c *Coordinator) reportLink(up bool, err error) {
	c.cfg.Observer.Observe(host.LinkChanged{Up: up, Err: err})
	if c.cfg.OnLinkChange != nil {
		c.cfg.OnLinkChange(up)
	}
}

// noteRefusedFilters takes note of what the broker refuses, and no longer refuses.
func (c *Coordinator) noteRefusedFilters(e mqtt.Event) {
	if c.refusedFilters.Step(e) {
		c.cfg.Observer.Observe(host.SubscriptionsRefused{Filters: c.refusedFilters.List()})
	}
}

// reportSelfTestOutcome reports the outcome of a test of the broker. It does nothing if ended is nil: no test has
// ended.
func (c *Coordinator) reportSelfTestOutcome(ended *mqtt.SelfTestOutcome) {
	if ended != nil {
		c.cfg.Observer.Observe(host.BrokerTested{SelfTestOutcome: *ended})
	}
}

// stepMachine gives the machine an event and does what it asks for. When the coordinator stops while something that
// must be on disk is not, nothing after it is done.
func (c *Coordinator) stepMachine(ev round.Event) {
	c.events.ProcessWithFollowUps(ev, func(ev round.Event) bool {
		for _, e := range c.machine.Step(c.ownerLoop.Now(), ev) {
			if !c.performEffect(e) {
				return false
			}
		}
		return true
	})
}

// runInBackground runs work beside the owner, and then what it returns in the owner's goroutine.
func (c *Coordinator) runInBackground(work func() func()) {
	c.ownerLoop.Go(func() { c.ownerLoop.RunOnLoop(work()) })
}

// sendToAgent sends a message about a round to one agent. A lost message is repeated:
// invitations by the machine's timer, answers when the agent asks again.
func (c *Coordinator) sendToAgent(agent wire.AgentID, t wire.MessageType, run wire.RunID, round wire.RoundID,
	body []byte) {
	var reader *host.SealRecipient
	if t.MustBeSealed() {
		if reader = c.keyring.Recipient(agent); reader == nil {
			return // nothing can be sealed for this agent
		}
	}
	err := c.conn.Publish(mqtt.Message{Topic: c.cfg.Topics.CoordinatorToAgent(agent), QoS: mqtt.AtMostOnce,
		Payload: c.signer.SealedEnvelope(reader, t, run, round, body)})
	if err != nil && c.linkUp {
		c.cfg.Logger.Debug("message not sent; what matters is repeated", "agent", agent, "type", t, "err", err)
	}
}

var enrolledAgents = observe.OptionalGauge("agents_enrolled",
	"Agents in the list of keys: those that may take part.")

// AgentListChanged: a list of agents took effect, at the start or later.
type AgentListChanged struct {
	ListedAgents int
	// RemovedAgents are the agents that are no longer listed, or have another key now, in id order. Only agents that
	// have sent messages are among them.
	RemovedAgents []wire.AgentID
}

// Describe implements observe.Event. A removed agent is no clone any more.
func (e AgentListChanged) Describe(d *observe.Description) {
	d.Set(enrolledAgents, float64(e.ListedAgents))
	for _, agent := range e.RemovedAgents {
		d.Resolve(devices.CloneCondition(agent))
	}
}

// SummarizeRun returns at most this many risks from the newest lines of the history. It may be called before Run. With
// an error it returns the part that could be read.
func (c *Coordinator) SummarizeRun(most int) (runs.RunSummary, error) {
	return c.stateFolder.SummarizeRun(c.machine.Record(), most)
}
