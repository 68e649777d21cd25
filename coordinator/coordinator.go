package coordinator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fedmesh/fedmesh/coordinator/aggregation"
	"github.com/fedmesh/fedmesh/coordinator/cleanup"
	"github.com/fedmesh/fedmesh/coordinator/devices"
	"github.com/fedmesh/fedmesh/coordinator/duplicate"
	"github.com/fedmesh/fedmesh/coordinator/meshplan"
	"github.com/fedmesh/fedmesh/coordinator/publish"
	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/coordinator/sealing"
	"github.com/fedmesh/fedmesh/coordinator/uploads"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// Coordinator is the parameter server of one federation.
type Coordinator struct {
	cfg                Config
	runID              wire.RunID // of the run of this process
	ownerLoop          *host.EventLoop
	signatureCheckPool *host.OrderedWorkerPool
	stopsBetweenRounds bool  // Run returns when no round is open
	stopError          error // Run returns it before the next wait

	conn      mqtt.Conn
	link      brokerLink
	guard     *duplicate.Guard
	cleanup   *cleanup.Cleanup
	publisher *publish.Publisher
	signer    *host.Signer
	keyring   *sealing.Keyring
	devices   *devices.Devices

	machine         *round.Coordinator
	machineEvents   host.EventQueue[round.Event] // given to the machine one after another
	uploads         *uploads.Uploads
	aggregator      *aggregation.Aggregator
	announcedTask   *task.CompiledTask[float32] // the aggregator may have the next one already
	mesh            *meshplan.Planner
	stateFolder     *runs.Folder
	folderJobs      *folderJobs
	eventsBeforeRun []observe.Event

	// lastRoundOutcome is the outcome of the round that ended last; empty before the first. It is set by
	// saveJournalRecord, read by the announcement that follows.
	lastRoundOutcome publish.Blob
	rolloutFiles     []publish.Blob // of the models that are rolled out
}

// New makes a coordinator that communicates over conn. It continues the run in the state folder, or begins one.
func New(cfg Config, conn mqtt.Conn) (*Coordinator, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("coordinator: %w", err)
	}
	if cfg.Disk.FS == nil {
		cfg.Disk = store.LocalDisk
	}
	if cfg.Signatures == nil {
		cfg.Signatures = wire.Ed25519{}
	}
	instance := cfg.Rand.Uint64()
	c := &Coordinator{
		cfg: cfg, conn: conn, ownerLoop: host.NewEventLoop(cfg.Runtime),
		link: brokerLink{observer: cfg.Observer, onChange: cfg.OnLinkChange},
		signer: &host.Signer{Federation: cfg.Federation, Sender: wire.CoordinatorID, Key: cfg.Key,
			Signatures: cfg.Signatures},
	}
	c.devices = devices.New(cfg.Agents, devices.Config{Now: c.ownerLoop.Now, Topics: cfg.Topics, Observer: cfg.Observer,
		Logger: cfg.Logger, Send: func(agent wire.AgentID, t wire.MessageType, body []byte) {
			c.sendToAgent(agent, t, 0, 0, body)
		}})
	c.signatureCheckPool, c.mesh = host.NewOrderedWorkerPool(c.ownerLoop), meshplan.NewPlanner(c.ownerLoop,
		cfg.MakeEdges)
	if cfg.SelfTestTimeout > 0 {
		c.link.selfTest = mqtt.NewSelfTest(conn, cfg.Topics.SelfTest(wire.CoordinatorID), cfg.SelfTestTimeout,
			cfg.Rand)
	}
	c.folderJobs = newFolderJobs(c.ownerLoop, cfg.Observer, func(since time.Time) {
		if !c.uploads.StorageFails() { // else the round's time stands still already
			c.machineEvents.PushFront(round.StorageFailed{FailingSince: since}, round.StorageRecovered{})
		}
	})
	var err error
	if c.stateFolder, err = runs.OpenFolder(cfg.Disk, cfg.Dir); err != nil {
		return nil, err
	}
	c.stateFolder.Audit = cfg.Audit
	if cfg.FolderReplicator != nil {
		c.stateFolder.MinEpoch = cfg.FolderReplicator.Epoch()
		c.stateFolder.Epoch = max(c.stateFolder.Epoch, c.stateFolder.MinEpoch)
	}
	c.cleanup = cleanup.New(cleanup.Config{Conn: conn, Topics: cfg.Topics, Observer: cfg.Observer,
		Filters:  c.filters(),
		IsListed: func(agent wire.AgentID) bool { return c.devices.Key(agent) != nil }})
	c.publisher = publish.New(conn, cfg.Topics, cfg.Rand, cfg.Observer, c.handleAnnouncementSent)
	c.guard = duplicate.New(duplicate.Config{Conn: conn, Topic: cfg.Topics.Announcement(), Folder: c.stateFolder,
		Instance: instance, RaiseEpoch: cfg.RaiseEpoch, IsPresent: c.publisher.IsPresent, Open: c.openAnnouncement,
		Repeat: c.publisher.Repeat, Observer: cfg.Observer, Logger: cfg.Logger})
	if warning := cfg.Round.Aggregation.IneffectiveKeyWarning(cfg.Round.Participants); warning != "" {
		cfg.Logger.Warn(warning)
	}
	if err := c.loadState(); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// loadState makes the machine, and the parts that depend on the run, from the state folder. It does not wait for room
// on a full disk: whoever starts a coordinator should see the error.
func (c *Coordinator) loadState() error {
	c.aggregator = aggregation.New(aggregation.Config{Round: c.cfg.Round, Task: c.cfg.Task,
		Standardize: c.cfg.Standardize, FeatureClip: c.cfg.FeatureClip,
		RestandardizeVersions: c.cfg.RestandardizeVersions, HeldOutSource: c.cfg.HeldOutSource,
		InitialModelPath: c.cfg.InitialModelPath, Logger: c.cfg.Logger}, c.stateFolder, c.ownerLoop.Now)
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
	c.announcedTask = c.aggregator.Task()
	c.uploads = uploads.New(uploads.Config{Loop: c.ownerLoop, Folder: c.stateFolder, Observer: c.cfg.Observer,
		Logger: c.cfg.Logger, MaxBufferedBytes: c.cfg.MaxBufferedUpdateBytes, MaxNorm: c.cfg.MaxNorm,
		RemovalJobs: c.folderJobs.removals, Step: c.stepMachine, ReportWrite: c.folderJobs.report,
		SendCredit: func(agent wire.AgentID, credit []byte) {
			c.sendToAgent(agent, wire.TypeChunkCredit, c.runID, c.currentRound(), credit)
		}}, max(c.announcedTask.UpdateSchema(wire.KindTraining).VectorByteCount(),
		c.announcedTask.UpdateSchema(wire.KindStatistics).VectorByteCount()))
	c.publisher.Restore(c.stateFolder.PublishedBlobs)
	var spooled map[wire.AgentID]round.SpooledUpdate
	spool, err := c.uploads.Recover(&record)
	if spool != nil {
		spooled, err = c.aggregator.SpooledUpdates(spool, record.Plan.Kind)
	}
	c.cfg.Round.Gather.Response.ListedAgents = c.devices.List().Len()
	c.machine = round.NewCoordinator(c.cfg.Round, record, spooled)
	c.guard.Restore(runs.PositionOfRecord(c.cfg.rootVersion(), c.stateFolder.Epoch, record), newRun)
	return err
}

// queueEvent keeps an event until Run reports it.
func (c *Coordinator) queueEvent(e observe.Event) { c.eventsBeforeRun = append(c.eventsBeforeRun, e) }

// Run works until ctx ends, and returns nil then. Another error is why the coordinator could not continue; it wraps a
// *duplicate.OutdatedError if another coordinator is further.
func (c *Coordinator) Run(ctx context.Context) error {
	c.ownerLoop.AllowJobs(ctx)
	c.aggregator.RetryWrite = c.folderJobs.writeInJob
	defer c.close()
	defer c.ownerLoop.CancelAndAwaitJobs()
	c.conn.Subscribe(mqtt.AtMostOnce, c.cfg.Topics.Announcement()) // others when the machine starts
	c.cfg.Observer.Observe(AgentListChanged{ListedAgents: c.devices.List().Len()})
	for _, e := range c.eventsBeforeRun {
		c.cfg.Observer.Observe(e)
	}
	err := c.ownerLoop.Run(ctx, c.conn.Events(),
		host.LoopHandlers{BeforeWait: c.beforeEachWait, OnEvent: c.handleConnEvent, OnDeadline: c.tick,
			Deadline: c.nextTickAt})
	if err != nil {
		err = fmt.Errorf("coordinator: %w", err)
	}
	return errors.Join(err, c.conn.Close())
}

// beforeEachWait is called before each wait of the owner. An error ends the coordinator.
func (c *Coordinator) beforeEachWait() error {
	c.folderJobs.reportQueue()
	if c.stopError != nil {
		return c.stopError
	}
	c.publisher.BeforeWait(c.ownerLoop.Now())
	if c.stopsBetweenRounds && !IsRoundOpen(c.machine.JournalRecord().Phase) {
		return ErrStoppedBetweenRounds
	}
	return nil
}

// Alive returns nil once the owner's goroutine has responded: it works, or waits for room on a disk. It returns an
// error if the goroutine has not responded before ctx ended. It may be called from any goroutine.
func (c *Coordinator) Alive(ctx context.Context) error {
	if err := c.ownerLoop.CheckAlive(ctx); err != nil {
		return fmt.Errorf("coordinator: %w", err)
	}
	return nil
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

// nextTickAt returns the earliest deadline; an hour from now if there is none.
func (c *Coordinator) nextTickAt() time.Time {
	at := c.ownerLoop.Now().Add(time.Hour)
	for _, d := range []func() (time.Time, bool){c.machine.Deadline, c.uploads.Deadline, c.publisher.Deadline,
		c.guard.Deadline, c.cleanup.Deadline, c.link.selfTest.Deadline} {
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
	c.link.tick(now)
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
		c.stepMachine(round.StartOrResumeRun{})
		c.revoke(c.delistedParticipants())
	}
	c.link.works = true
	c.publishRoots()
	// the machine sends its acceptances before an announcement that ends the round for those agents
	c.stepMachine(round.LinkUp{})
	c.publisher.LinkUp(c.ownerLoop.Now())
	c.cleanup.LinkUp(c.ownerLoop.Now())
	for _, m := range f.Held {
		c.handleMessage(m)
	}
}

// filters returns the filters of the messages of agents.
func (c *Coordinator) filters() []string {
	return []string{c.cfg.Topics.UpdatesFilter(), c.cfg.Topics.PresencesFilter(),
		c.cfg.Topics.AllAgentToCoordinatorFilter()}
}

// handleConnEvent handles an event of the connection to the broker.
func (c *Coordinator) handleConnEvent(e mqtt.Event) {
	if c.link.test(c.ownerLoop.Now(), e) {
		return
	}
	switch e := e.(type) {
	case mqtt.LinkUp:
		c.link.reportChange(true, nil)
		c.guard.LinkUp(c.ownerLoop.Now())
	case mqtt.LinkDown:
		c.guard.LinkDown()
		c.publisher.LinkDown()
		c.cleanup.LinkDown(c.ownerLoop.Now())
		c.link.reportChange(false, e.Err)
		c.link.reportRefused(e)
		if c.link.works {
			c.link.works = false
			c.stepMachine(round.LinkDown{})
		}
	case mqtt.SubscriptionRefused:
		if !c.publisher.FilterRefused(c.ownerLoop.Now(), e.Filter) {
			c.link.reportRefused(e)
		}
	case mqtt.SubscriptionRefusalEnded:
		c.link.reportRefused(e)
	case mqtt.MessageReceived:
		c.handleMessage(e.Message)
	}
}

// stepMachine gives the machine an event, and performs the effects that follow. If the coordinator stops before an
// effect is on disk, the later effects are dropped.
func (c *Coordinator) stepMachine(ev round.Event) {
	c.machineEvents.ProcessWithFollowUps(ev, func(ev round.Event) bool {
		for _, e := range c.machine.Step(c.ownerLoop.Now(), ev) {
			if !c.performEffect(e) {
				return false
			}
		}
		return true
	})
}

// sendToAgent sends a message to one agent. Lost messages are repeated: invitations by the machine's timer, answers
// when the agent asks again.
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
	if err != nil && c.link.works {
		c.cfg.Logger.Debug("message not sent; what matters is repeated", "agent", agent, "type", t, "err", err)
	}
}

// SummarizeRun returns at most this many risks from the newest lines of the history. It may be called before Run. With
// an error it returns the part that could be read.
func (c *Coordinator) SummarizeRun(most int) (runs.RunSummary, error) {
	return c.stateFolder.SummarizeRun(c.machine.JournalRecord(), most)
}
