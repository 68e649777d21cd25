package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fedmesh/fedmesh/agent/announcement"
	"github.com/fedmesh/fedmesh/agent/budget"
	"github.com/fedmesh/fedmesh/agent/device"
	"github.com/fedmesh/fedmesh/agent/evaluation"
	"github.com/fedmesh/fedmesh/agent/fetch"
	"github.com/fedmesh/fedmesh/agent/identity"
	"github.com/fedmesh/fedmesh/agent/mesh"
	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/agent/predict"
	"github.com/fedmesh/fedmesh/agent/presence"
	"github.com/fedmesh/fedmesh/agent/state"
	"github.com/fedmesh/fedmesh/agent/taskdata"
	"github.com/fedmesh/fedmesh/agent/training"
	"github.com/fedmesh/fedmesh/agent/upload"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/wire"
)

// Agent trains on the data of one device and communicates with the coordinator and the neighbours.
type Agent struct {
	cfg            Config
	core           *part.AgentCore
	parts          part.PartList
	announcements  *announcement.AnnouncementWatch
	presence       *presence.AgentPresence
	identity       *identity.AgentIdentity
	fetch          *fetch.Fetcher
	taskData       *taskdata.TaskDataLoader
	predict        *predict.PredictionManager
	evaluation     *evaluation.ModelEvaluator
	budget         *budget.BudgetEnforcer
	training       *training.TrainingManager
	upload         *upload.UpdateUploader
	roundMachine   *agentround.Machine
	mesh           *mesh.NeighborMesh
	brokerSelfTest *mqtt.BrokerSelfTest // self-test of the broker; nil if there is none

	obeyedAnnouncementStore      obeyedAnnouncementStore
	stopErr                      error // error with which the event loop stops at its next wait; nil if there is none
	refusedFilters               mqtt.RefusedFilters
	neighborBrokerRefusedFilters []string // subscriptions that a separate broker for neighbours has refused

	roundBaseModel roundBaseModel
	roundEvents    host.EventQueue[agentround.Event]
}

// New returns an agent that loads its state from the state folder. connect opens the broker connection and receives a
// function that returns the agent's MQTT will.
func New(cfg Config, connect func(will func() mqtt.Message) (mqtt.Conn, error)) (*Agent, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	cfg.setDefaults()
	a := &Agent{cfg: cfg}
	loop := host.NewEventLoop(cfg.Runtime)
	a.core = &part.AgentCore{Federation: cfg.Federation, ID: cfg.ID, Topics: cfg.Topics, StateFolder: cfg.stateFolder(),
		WriteRetrier: &state.WriteRetrier{Loop: loop, Observer: cfg.Observer}, Loop: loop,
		DataJobs: host.NewSerialJobQueue(loop), ModelJobs: host.NewSerialJobQueue(loop),
		Observer: cfg.Observer, Logger: cfg.Logger, Rand: cfg.Rand,
		Signer: &host.Signer{Federation: cfg.Federation, Sender: cfg.ID, Epoch: cfg.BootEpoch,
			SignatureScheme: cfg.SignatureScheme},
		HandleRoundEvent: a.handleRoundEvent, StopAgent: func(err error) { a.stopErr = err },
		Publish: a.publish, IsUplinkBudgetSpent: func() bool { return a.budget.IsSpent() },
		TrainingMustRest: a.trainingMustRest}
	a.core.Sealer = part.NewSealer(a.core)
	a.obeyedAnnouncementStore = obeyedAnnouncementStore{core: a.core,
		slots: a.core.StateFolder.OpenSlots(state.ObeyedPosition)}
	position, digest, err := loadAnnouncementPosition(a.obeyedAnnouncementStore.slots)
	if err != nil {
		return nil, err
	}
	a.core.ObeyedPosition = position
	if a.identity, err = identity.New(a.core, &a.cfg.Identity, a.applyRootDocument); err != nil {
		return nil, err
	}
	if a.upload, err = upload.New(a.core, cfg.MinUplinkRate, func(run wire.RunID, r wire.RoundID, f wire.UpdateFate) {
		a.taskData.RecordUpdateFate(run, r, f)
	}); err != nil {
		return nil, err
	}
	a.announcements = announcement.NewAnnouncementWatch(a.core, a.identity.CoordinatorKeys)
	a.presence = presence.New(a.core, &a.cfg.Presence, presence.AgentCallbacks{
		HasRoundWork:  func() bool { return a.roundMachine.HasRoundWork() },
		MayDisconnect: func() bool { return a.roundMachine.MayDisconnect() && !a.anyPartNeedsLink() },
		OnDisconnect:  a.announcements.PostponeStaleness,
		OnKeyRejected: a.identity.RequestKeyReplacement}) // The coordinator may already know the replacement key.
	a.roundMachine = agentround.New(position, digest, a.upload.SavedUpdate(), cfg.Rand)
	if a.fetch, err = fetch.New(a.core, fetch.Config{MaxBytes: cfg.MaxBlobBytes, MinUplinkRate: cfg.MinUplinkRate,
		NeedsModelsOutsideRounds: cfg.Predict != nil}, a.recordAcceptanceByCoordinator); err != nil {
		return nil, err
	}
	if a.taskData, err = taskdata.New(a.core, cfg.TaskData, taskdata.AgentCallbacks{
		CountReportedRows:   cfg.Training.Trainer.ReportedRowCount,
		OnTaskOrRowsChanged: func() { a.predict.JudgeNewestModel(); a.evaluation.EvaluateRequestedModel() },
	}); err != nil {
		return nil, err
	}
	if a.training, err = training.New(a.core, cfg.Training, training.TrainingDependencies{Uploads: a.upload,
		Tasks:        a.taskData,
		LoadTaskRows: a.taskData.LoadTaskRows}); err != nil {
		return nil, err
	}
	a.predict = predict.New(a.core, cfg.Predict, a.predictDependencies())
	a.evaluation = evaluation.New(a.core, a.evaluationDependencies())
	if a.budget, err = budget.New(a.core, cfg.Budget, cfg.Mesh.UsesCoordinatorBroker(), cfg.Now,
		a.roundMachine.EstimateRoundBytes); err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	a.parts = part.PartList{a.upload, a.announcements, a.presence, a.identity, a.fetch, a.taskData, a.predict,
		a.evaluation, a.budget, device.NewRuleWatch(a.core, cfg.JudgeDevice), a.core.WriteRetrier, a.training}
	if a.core.Conn, err = connect(a.presence.Will); err != nil {
		a.closeParts()
		return nil, err
	}
	a.mesh, err = mesh.New(a.core, cfg.Mesh, a.identity,
		mesh.EventCallbacks{OnFiltersRefused: a.recordNeighborRefusedFilters,
			OnBeaconDropped: func(err error) { a.reportDroppedMessage(mqtt.KindBeacon, err) }})
	if err != nil {
		_ = a.core.Conn.Close() // Ignore the close error and return the earlier error.
		a.closeParts()
		return nil, err
	}
	a.parts = append(part.PartList{a.mesh}, a.parts...)
	a.training.Mesh = training.MeshAccess{CanMix: a.mesh.CanMix(), NeighborBrokerConn: a.mesh.NeighborBrokerConn,
		BlockInbox:  a.mesh.BlockInbox,
		BlockWaiter: a.mesh.BlockWaiter, MakeExchangeConfig: a.mesh.MakeExchangeConfig}
	if cfg.SelfTestTimeout > 0 && !a.budget.IsSpent() {
		a.brokerSelfTest = mqtt.NewBrokerSelfTest(a.core.Conn, cfg.Topics.SelfTest(cfg.ID), cfg.SelfTestTimeout,
			cfg.Rand)
	}
	return a, nil
}

// Run runs the agent until ctx ends, then disconnects from the broker. It returns an error only if the agent failed.
func (a *Agent) Run(ctx context.Context) error {
	a.core.Loop.AllowJobs(ctx)
	defer a.core.Loop.CancelAndAwaitJobs()
	a.core.Conn.Subscribe(mqtt.AtMostOnce, a.cfg.Topics.CoordinatorToAgent(a.cfg.ID), a.cfg.Topics.Presence(a.cfg.ID))
	for p := range part.PartsImplementing[part.Starter](a.parts) {
		p.Start()
	}
	err := a.core.Loop.Run(ctx, a.core.Conn.Events(),
		host.LoopHandlers{BeforeWait: a.prepareForWait, OnMQTTEvent: a.handleConnEvent, OnDeadline: a.tick,
			NextDeadline: a.nextTickAt})
	switch {
	case err == nil:
		a.presence.PublishOffline()
	case errors.As(err, new(*presence.BootCounterLostError)), errors.As(err, new(*identity.DeviceKeyReplacedError)):
		a.core.Loop.CancelJobs() // Skip the offline message, which could replace a newer message at the broker.
	default:
		a.closeParts()
		return fmt.Errorf("agent: %w", err)
	}
	a.mesh.EndScout()
	err = errors.Join(err, a.core.Conn.Close())
	a.closeParts()
	return err
}

// closeParts closes all parts. It is called after the agent has ended or if New fails.
func (a *Agent) closeParts() {
	for p := range part.PartsImplementing[part.Closer](a.parts) {
		p.Close()
	}
}

// prepareForWait prepares the parts of the agent for the next wait of the event loop. It returns an error if the agent
// must stop.
func (a *Agent) prepareForWait() error {
	if a.stopErr != nil {
		return a.stopErr
	}
	for p := range part.PartsImplementing[part.BeforeWaitHook](a.parts) {
		p.BeforeWait()
	}
	a.presence.UpdatePresence()
	return nil
}

// trainingMustRest reports whether any part requires training to pause.
func (a *Agent) trainingMustRest() bool {
	for p := range part.PartsImplementing[part.TrainingRestDecider](a.parts) {
		if p.TrainingMustRest() {
			return true
		}
	}
	return false
}

// anyPartNeedsLink reports whether the agent needs the broker connection for one of its parts, a missing group key or a
// broker self-test. It ignores the needs of the round state machine.
func (a *Agent) anyPartNeedsLink() bool {
	for p := range part.PartsImplementing[part.LinkNeedReporter](a.parts) {
		if p.NeedsLink() {
			return true
		}
	}
	tested, testing := a.brokerSelfTest.Deadline()
	return a.fetch.AwaitsGroupKey() && !a.roundMachine.SendsNoHello() ||
		testing && tested.Before(a.core.Loop.Now().Add(time.Minute))
}

// CheckAlive returns an error if the event loop does not answer before ctx ends, or if a cancelled training job still
// runs. It may be called from any goroutine.
func (a *Agent) CheckAlive(ctx context.Context) error {
	if err := a.core.Loop.CheckAlive(ctx); err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	return a.training.CheckStuckJobs(time.Now())
}

// nextTickAt returns the earliest time at which a part of the agent needs a tick, at most one hour from now.
func (a *Agent) nextTickAt() time.Time {
	next := part.EarliestDeadline{At: a.core.Loop.Now().Add(time.Hour), IsSet: true}
	next.Add(a.roundMachine.Deadline())
	next.Add(a.brokerSelfTest.Deadline())
	for p := range part.PartsImplementing[part.TickHook](a.parts) {
		next.Add(p.Deadline())
	}
	return next.At
}

func (a *Agent) tick(now time.Time) {
	a.handleRoundEvent(agentround.Tick{})
	a.reportSelfTestOutcome(a.brokerSelfTest.Tick(now))
	for p := range part.PartsImplementing[part.TickHook](a.parts) {
		p.Tick(now)
	}
}

// handleConnEvent handles an event of the broker connection.
func (a *Agent) handleConnEvent(e mqtt.Event) {
	own, ended := a.brokerSelfTest.Step(a.core.Loop.Now(), e)
	if a.reportSelfTestOutcome(ended); own || a.announcements.HandleSearchEvent(e) {
		return
	}
	switch e := e.(type) {
	case mqtt.LinkUp:
		a.core.IsConnected = true
		for p := range part.PartsImplementing[part.LinkFollower](a.parts) {
			p.LinkUp()
		}
		a.handleRoundEvent(agentround.LinkUp{})
		a.upload.ContinueSending()
	case mqtt.LinkDown:
		a.core.IsConnected = false
		for p := range part.PartsImplementing[part.LinkFollower](a.parts) {
			p.LinkDown(e.Err)
		}
		a.updateRefusedFilters(e)
		a.handleRoundEvent(agentround.LinkDown{})
		a.upload.InterruptSending()
	case mqtt.SubscriptionRefused, mqtt.SubscriptionRefusalEnded:
		a.updateRefusedFilters(e)
	case mqtt.MessageReceived:
		a.receiveMessage(e.Message)
	}
}

// updateRefusedFilters updates the list of subscriptions that the broker refuses.
func (a *Agent) updateRefusedFilters(e mqtt.Event) {
	if a.refusedFilters.Step(e) {
		a.reportRefusedFilters()
	}
}

// recordNeighborRefusedFilters stores and reports the subscriptions that a separate broker for neighbours refuses.
func (a *Agent) recordNeighborRefusedFilters(filters []string) {
	a.neighborBrokerRefusedFilters = filters
	a.reportRefusedFilters()
}

func (a *Agent) reportRefusedFilters() {
	a.cfg.Observer.Observe(host.RefusedSubscriptionsChanged{Filters: a.refusedFilters.List(),
		NeighborBrokerFilters: a.neighborBrokerRefusedFilters})
}

func (a *Agent) publish(m mqtt.Message) {
	if err := a.core.Conn.Publish(m); err != nil && a.core.IsConnected {
		a.cfg.Logger.Debug("MQTT message not sent; important messages are retried", "topic", m.Topic, "err", err)
	}
}

// reportSelfTestOutcome reports the result of a broker test. It does nothing if ended is nil.
func (a *Agent) reportSelfTestOutcome(ended *mqtt.SelfTestReport) {
	if ended != nil {
		a.announcements.HandleAccessTestResult(ended.Result)
		a.cfg.Observer.Observe(host.BrokerSelfTestEnded{SelfTestReport: *ended})
	}
}

// applyRootDocument applies a new root document, the signed list of the coordinator's trusted keys. It forgets the
// issue times of earlier messages and checks attestations again, because a stolen key may have signed them.
func (a *Agent) applyRootDocument() {
	a.mesh.ApplyRootDocument()
	a.announcements.ForgetIssueTimes()
}

// RotateKey replaces the device's key (see [identity.AgentIdentity.RotateKey]). It may be called from any goroutine.
func (a *Agent) RotateKey(ctx context.Context) error { return a.identity.RotateKey(ctx) }

// handleRoundEvent passes an event to the round state machine and performs the resulting effects.
func (a *Agent) handleRoundEvent(ev agentround.Event) {
	a.roundEvents.ProcessWithFollowUps(ev, func(ev agentround.Event) bool {
		for _, e := range a.roundMachine.Step(a.core.Loop.Now(), ev) {
			a.performRoundEffect(e)
		}
		return true
	})
}
