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
	runID              wire.RunID // id of the current run
	ownerLoop          *host.EventLoop
	signatureCheckPool *host.OrderedWorkerPool
	stopsBetweenRounds bool  // true if Run must return when no round is open
	stopError          error // error that Run returns before its next wait

	conn            mqtt.Conn
	linkMonitor     brokerLinkMonitor
	duplicateGuard  *duplicate.CoordinatorGuard
	retainedCleanup *cleanup.RetainedCleanup
	publisher       *publish.Publisher
	signer          *host.Signer
	keyring         *sealing.Keyring
	messageChecker  *devices.MessageChecker

	roundMachine       *round.CoordinatorMachine
	roundMachineEvents host.EventQueue[round.Event] // queue of events for the round machine
	uploads            *uploads.Uploads
	aggregator         *aggregation.Aggregator
	// announcedTask is the task in the current announcement. The aggregator may already have compiled the next task.
	announcedTask   *task.CompiledTask[float32]
	mesh            *meshplan.Planner
	stateFolder     *runs.StateFolder
	folderWriter    *stateFolderWriter
	eventsBeforeRun []observe.Event

	// lastRoundOutcome is the encoded outcome of the last round; empty before the first round has ended.
	// saveJournalRecord sets it, and the next announcement contains it.
	lastRoundOutcome publish.Blob
	rolloutFiles     []publish.Blob // files of the models that are being rolled out
}

// New returns a Coordinator that communicates over conn. It continues the run in the state folder or begins a new run.
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
		linkMonitor: brokerLinkMonitor{observer: cfg.Observer, onChange: cfg.OnLinkChange},
		signer: &host.Signer{Federation: cfg.Federation, Sender: wire.CoordinatorID, Key: cfg.Key,
			SignatureScheme: cfg.Signatures},
	}
	c.messageChecker = devices.New(cfg.Agents, devices.Config{Now: c.ownerLoop.Now, Topics: cfg.Topics,
		Observer: cfg.Observer,
		Logger:   cfg.Logger, SendToAgent: func(agent wire.AgentID, t wire.MessageType, body []byte) {
			c.sendToAgent(agent, t, 0, 0, body)
		}})
	c.signatureCheckPool, c.mesh = host.NewOrderedWorkerPool(c.ownerLoop), meshplan.NewPlanner(c.ownerLoop,
		cfg.MakeEdges)
	if cfg.SelfTestTimeout > 0 {
		c.linkMonitor.selfTest = mqtt.NewBrokerSelfTest(conn, cfg.Topics.SelfTest(wire.CoordinatorID),
			cfg.SelfTestTimeout,
			cfg.Rand)
	}
	c.folderWriter = newStateFolderWriter(c.ownerLoop, cfg.Observer, func(since time.Time) {
		if !c.uploads.StorageFails() { // If storing updates fails, the deadline is already extended.
			c.roundMachineEvents.PushFront(round.StorageFailed{FailingSince: since}, round.StorageRecovered{})
		}
	})
	var err error
	if c.stateFolder, err = runs.OpenStateFolder(cfg.Disk, cfg.StateDir); err != nil {
		return nil, err
	}
	c.stateFolder.Audit = cfg.Audit
	if cfg.FolderReplicator != nil {
		c.stateFolder.MinEpoch = cfg.FolderReplicator.Epoch()
		c.stateFolder.Epoch = max(c.stateFolder.Epoch, c.stateFolder.MinEpoch)
	}
	c.retainedCleanup = cleanup.New(cleanup.Config{Conn: conn, Topics: cfg.Topics, Observer: cfg.Observer,
		CoordinatorFilters: c.agentMessageFilters(),
		IsAgentListed:      func(agent wire.AgentID) bool { return c.messageChecker.AgentKey(agent) != nil }})
	c.publisher = publish.New(conn, cfg.Topics, cfg.Rand, cfg.Observer, c.handleAnnouncementSent)
	c.duplicateGuard = duplicate.New(duplicate.Config{Conn: conn, AnnouncementTopic: cfg.Topics.Announcement(),
		Folder:   c.stateFolder,
		Instance: instance, RaiseEpoch: cfg.RaiseEpoch, IsPresentAnnouncement: c.publisher.IsPresentAnnouncement,
		OpenAnnouncement:   c.verifyAndOpenAnnouncement,
		RepeatAnnouncement: c.publisher.RepeatAnnouncement, Observer: cfg.Observer, Logger: cfg.Logger})
	if warning := cfg.Round.Aggregation.IneffectiveKeyWarning(cfg.Round.Participants); warning != "" {
		cfg.Logger.Warn(warning)
	}
	if err := c.loadState(); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// loadState restores the round machine and the other components from the state folder. It returns an error if the disk
// is full, because the operator is present at the start.
func (c *Coordinator) loadState() error {
	c.aggregator = aggregation.New(aggregation.Config{Round: c.cfg.Round, Task: c.cfg.Task,
		Standardize: c.cfg.Standardize, FeatureClipDeviations: c.cfg.FeatureClipDeviations,
		RestandardizeVersions: c.cfg.RestandardizeVersions, HeldOutSource: c.cfg.HeldOutSource,
		InitialModelPath: c.cfg.InitialModelPath, Logger: c.cfg.Logger}, c.stateFolder, c.ownerLoop.Now)
	record, newRun, err := c.resumeOrBeginRun()
	if err != nil {
		return err
	}
	if err := c.resumeRollout(&record); err != nil {
		return err
	}
	c.runID, c.signer.Epoch = record.Run, c.stateFolder.Epoch
	c.signer.SetRootVersion(c.cfg.rootDocumentVersion())
	if c.keyring, err = sealing.LoadKeyring(sealing.Config{CoordinatorKey: c.cfg.Key, Folder: c.stateFolder,
		FillRandom:         c.cfg.FillRandom,
		FindAgentPublicKey: c.messageChecker.AgentKey, Logger: c.cfg.Logger},
		c.messageChecker.AgentList()); err != nil {
		return err
	}
	c.announcedTask = c.aggregator.Task()
	c.uploads = uploads.New(uploads.Config{Loop: c.ownerLoop, Folder: c.stateFolder, Observer: c.cfg.Observer,
		Logger: c.cfg.Logger, MaxBufferedBytes: c.cfg.MaxBufferedUpdateBytes, MaxUpdateNorm: c.cfg.MaxUpdateNorm,
		RemovalJobs: c.folderWriter.removalQueue, StepRoundMachine: c.stepMachine,
		ReportWriteResult: c.folderWriter.reportWriteResult,
		SendCredit: func(agent wire.AgentID, credit []byte) {
			c.sendToAgent(agent, wire.TypeChunkCredit, c.runID, c.currentRound(), credit)
		}}, max(c.announcedTask.UpdateSchema(wire.KindTraining).VectorByteCount(),
		c.announcedTask.UpdateSchema(wire.KindStatistics).VectorByteCount()))
	c.publisher.RestoreListing(c.stateFolder.PublishedBlobs)
	var spooled map[wire.AgentID]round.SpooledUpdate
	spool, err := c.uploads.RecoverSpool(&record)
	if spool != nil {
		spooled, err = c.aggregator.SpooledUpdates(spool, record.Plan.Kind)
	}
	c.cfg.Round.Gather.ResponseLottery.ListedAgents = c.messageChecker.AgentList().Len()
	c.roundMachine = round.NewCoordinator(c.cfg.Round, record, spooled)
	c.duplicateGuard.RestorePosition(runs.PositionOfRecord(c.cfg.rootDocumentVersion(), c.stateFolder.Epoch, record),
		newRun)
	return err
}

// deferEventUntilRun stores an event that Run reports later.
func (c *Coordinator) deferEventUntilRun(e observe.Event) {
	c.eventsBeforeRun = append(c.eventsBeforeRun, e)
}

// Run runs the coordinator until ctx ends and then returns nil. An error means that the coordinator could not continue.
// The error wraps a *duplicate.OutdatedError if another coordinator has announced a later round.
func (c *Coordinator) Run(ctx context.Context) error {
	c.ownerLoop.AllowJobs(ctx)
	c.aggregator.RetryWrite = c.folderWriter.writeInJob
	defer c.close()
	defer c.ownerLoop.CancelAndAwaitJobs()
	// Other subscriptions follow when the round machine starts.
	c.conn.Subscribe(mqtt.AtMostOnce, c.cfg.Topics.Announcement())
	c.cfg.Observer.Observe(AgentListChanged{ListedAgents: c.messageChecker.AgentList().Len()})
	for _, e := range c.eventsBeforeRun {
		c.cfg.Observer.Observe(e)
	}
	err := c.ownerLoop.Run(ctx, c.conn.Events(),
		host.LoopHandlers{BeforeWait: c.beforeEachWait, OnMQTTEvent: c.handleConnEvent, OnDeadline: c.tick,
			NextDeadline: c.nextTickAt})
	if err != nil {
		err = fmt.Errorf("coordinator: %w", err)
	}
	return errors.Join(err, c.conn.Close())
}

// beforeEachWait runs before each wait of the owner goroutine. An error ends the coordinator.
func (c *Coordinator) beforeEachWait() error {
	c.folderWriter.reportQueuedResults()
	if c.stopError != nil {
		return c.stopError
	}
	c.publisher.AdvanceBeforeWait(c.ownerLoop.Now())
	if c.stopsBetweenRounds && !IsRoundOpen(c.roundMachine.JournalRecord().Phase) {
		return ErrStoppedBetweenRounds
	}
	return nil
}

// Alive returns nil if the owner goroutine responds before ctx ends. While it waits for space on a full disk, it also
// responds. Alive is safe for concurrent use.
func (c *Coordinator) Alive(ctx context.Context) error {
	if err := c.ownerLoop.CheckAlive(ctx); err != nil {
		return fmt.Errorf("coordinator: %w", err)
	}
	return nil
}

func (c *Coordinator) close() {
	c.publisher.HaltPublishing()
	if c.uploads != nil {
		c.uploads.Close()
	}
	if err := c.messageChecker.AgentList().Close(); err != nil {
		c.cfg.Logger.Warn("cannot close the list of agents", "err", err)
	}
	if err := c.stateFolder.Close(); err != nil {
		c.cfg.Logger.Error("cannot close the history", "err", err)
	}
}

// currentRound returns the round of the current announcement, or 0 before the first announcement.
func (c *Coordinator) currentRound() wire.RoundID { return c.duplicateGuard.PresentPosition().Round }

// nextTickAt returns the earliest deadline of all components, at most one hour from now.
func (c *Coordinator) nextTickAt() time.Time {
	at := c.ownerLoop.Now().Add(time.Hour)
	for _, d := range []func() (time.Time, bool){c.roundMachine.Deadline, c.uploads.Deadline, c.publisher.Deadline,
		c.duplicateGuard.Deadline, c.retainedCleanup.Deadline, c.linkMonitor.selfTest.Deadline} {
		if t, ok := d(); ok && t.Before(at) {
			at = t
		}
	}
	return at
}

func (c *Coordinator) tick(now time.Time) {
	if c.duplicateGuard.HasWorkedOverLink() {
		c.stepMachine(round.Tick{})
	}
	c.uploads.Tick()
	c.linkMonitor.tickSelfTest(now)
	c.actOnGuardFinding(c.duplicateGuard.Tick(now))
	c.retainedCleanup.Tick(now)
}

// actOnGuardFinding stops the coordinator if another coordinator has announced a later round. Otherwise it starts work
// over the connection. The first time, it also starts the round machine from the journal.
func (c *Coordinator) actOnGuardFinding(f duplicate.GuardFinding) {
	if f.StopCause != nil {
		c.stopError = f.StopCause
	}
	if !f.MayWork {
		return
	}
	if f.IsFirstMayWork {
		c.signer.Epoch = c.stateFolder.Epoch
		c.cfg.Observer.Observe(RoundMachineStarted{Epoch: c.stateFolder.Epoch, EpochRaised: f.EpochRaised,
			AggregationRule: c.cfg.Round.Aggregation.Rule, ServerOptimizer: c.cfg.Round.ServerOptimizer.Name})
		c.conn.Subscribe(mqtt.AtMostOnce, c.agentMessageFilters()...)
		c.stepMachine(round.StartOrResumeRun{})
		c.revokeAgentsInRound(c.delistedParticipants())
	}
	c.linkMonitor.isUsable = true
	c.publishRootDocuments()
	// Pass the event to the round machine first, because it must send acceptances of updates before an announcement
	// ends the round for those agents.
	c.stepMachine(round.LinkUp{})
	c.publisher.LinkUp(c.ownerLoop.Now())
	c.retainedCleanup.LinkUp(c.ownerLoop.Now())
	for _, m := range f.HeldMessages {
		c.handleMessage(m)
	}
}

// agentMessageFilters returns the subscriptions for messages of agents.
func (c *Coordinator) agentMessageFilters() []string {
	return []string{c.cfg.Topics.AllUpdatePartsFilter(), c.cfg.Topics.AllPresencesFilter(),
		c.cfg.Topics.AllAgentToCoordinatorFilter()}
}

func (c *Coordinator) handleConnEvent(e mqtt.Event) {
	if c.linkMonitor.passToSelfTest(c.ownerLoop.Now(), e) {
		return
	}
	switch e := e.(type) {
	case mqtt.LinkUp:
		c.linkMonitor.reportConnectionChange(true, nil)
		c.duplicateGuard.LinkUp(c.ownerLoop.Now())
	case mqtt.LinkDown:
		c.duplicateGuard.LinkDown()
		c.publisher.LinkDown()
		c.retainedCleanup.LinkDown(c.ownerLoop.Now())
		c.linkMonitor.reportConnectionChange(false, e.Err)
		c.linkMonitor.reportRefusedFilters(e)
		if c.linkMonitor.isUsable {
			c.linkMonitor.isUsable = false
			c.stepMachine(round.LinkDown{})
		}
	case mqtt.SubscriptionRefused:
		if !c.publisher.HandleFilterRefusal(c.ownerLoop.Now(), e.Filter) {
			c.linkMonitor.reportRefusedFilters(e)
		}
	case mqtt.SubscriptionRefusalEnded:
		c.linkMonitor.reportRefusedFilters(e)
	case mqtt.MessageReceived:
		c.handleMessage(e.Message)
	}
}

// stepMachine passes an event to the round machine and performs the resulting effects. If the coordinator stops before
// an effect is on disk, the remaining effects are dropped.
func (c *Coordinator) stepMachine(ev round.Event) {
	c.roundMachineEvents.ProcessWithFollowUps(ev, func(ev round.Event) bool {
		for _, e := range c.roundMachine.Step(c.ownerLoop.Now(), ev) {
			if !c.performEffect(e) {
				return false
			}
		}
		return true
	})
}

// sendToAgent sends a message to one agent. Lost messages are repeated: invitations by a timer of the round machine,
// answers when the agent repeats its request.
func (c *Coordinator) sendToAgent(agent wire.AgentID, t wire.MessageType, run wire.RunID, round wire.RoundID,
	body []byte) {
	var reader *host.SealRecipient
	if t.MustBeSealed() {
		if reader = c.keyring.SealRecipientFor(agent); reader == nil {
			return // no key to encrypt for this agent
		}
	}
	err := c.conn.Publish(mqtt.Message{Topic: c.cfg.Topics.CoordinatorToAgent(agent), QoS: mqtt.AtMostOnce,
		Payload: c.signer.SealedEnvelope(reader, t, run, round, body)})
	if err != nil && c.linkMonitor.isUsable {
		c.cfg.Logger.Debug("cannot send a message to an agent; important messages are sent again later", "agent", agent,
			"type", t, "err", err)
	}
}

// SummarizeRun summarises the part of the run before this process started. The argument most limits the number of risk
// values from the history. SummarizeRun may be called before Run. If it returns an error, the summary covers the part
// that could be read.
func (c *Coordinator) SummarizeRun(most int) (runs.EarlierRunSummary, error) {
	return c.stateFolder.SummarizeRun(c.roundMachine.JournalRecord(), most)
}
