package datacheck

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/agent/announcement"
	"github.com/fedmesh/fedmesh/agent/fetch"
	"github.com/fedmesh/fedmesh/internal/agentd/agentconfig"
	"github.com/fedmesh/fedmesh/internal/api"
	"github.com/fedmesh/fedmesh/internal/logging"
	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/mqtt/transfer"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// brokerTimeout is the time limit for a reply from the broker.
const brokerTimeout = 5 * time.Second

// causeSearchTime is the time limit for the broker to return the test message and the announcements of other
// federations.
const causeSearchTime = 3 * time.Second

// maxTaskBytes is the maximum size of a fetched task in bytes.
const maxTaskBytes = 4 << 20

// MissingTaskError reports that the task is not announced or that the device does not accept the announcement.
type MissingTaskError struct {
	Reason announcement.MissingReason
	err    error
	Remedy string // action for the operator
}

func (m *MissingTaskError) Error() string { return m.err.Error() }

// newMissingTaskError returns a MissingTaskError for the given reason. others are federations with an announcement at
// the same broker.
func newMissingTaskError(federation string, reason announcement.MissingReason,
	others ...wire.FederationName) *MissingTaskError {
	event := announcement.AnnouncementMissing{Reason: reason, Federation: wire.FederationName(federation),
		OtherFederations: others}
	return &MissingTaskError{reason, errors.New(event.Problem()), event.Remedy()}
}

// TaskPath is the API path at which a running agent returns an [AgentTask].
const TaskPath = "/v1/task"

// AgentTask is the task of a running agent, or the reason why it has no task.
type AgentTask struct {
	// EncodedTask is the encoding of the announced task. EncodedTask is absent if the agent has no task.
	EncodedTask      []byte                     `json:"task,omitempty"`
	MissingReason    announcement.MissingReason `json:"missing,omitempty"`
	OtherFederations []wire.FederationName      `json:"other_federations,omitempty"`
	// RejectionAdvice is the reason why the coordinator ignores the agent's messages.
	RejectionAdvice string `json:"rejected,omitempty"`
}

// AgentRejectedError reports that a running agent has no task because the coordinator ignores its messages.
type AgentRejectedError struct{ Remedy string }

func (e *AgentRejectedError) Error() string { return e.Remedy }

// fetchRunningAgentTask returns the task of the running agent. Both results are nil if the agent cannot be reached.
func fetchRunningAgentTask(ctx context.Context, s *settings.Agent) (*TaskWithOrigin, error) {
	var held AgentTask
	client := api.Client{Program: "agentd", Dir: s.FederationFolder(), Timeout: brokerTimeout}
	if err := client.Call(ctx, http.MethodGet, TaskPath, nil, &held); err != nil {
		return nil, nil
	}
	switch {
	case held.EncodedTask != nil:
		t, err := wire.DecodeTask(held.EncodedTask)
		return &TaskWithOrigin{t, "the running agentd", held.RejectionAdvice}, err
	case held.RejectionAdvice != "":
		return nil, &AgentRejectedError{held.RejectionAdvice}
	case held.MissingReason != "":
		return nil, newMissingTaskError(s.Federation, held.MissingReason, held.OtherFederations...)
	}
	return nil, errors.New("the running agentd has no task yet: try again in 30 seconds, or run `agentd status`")
}

// FetchAnnouncedTask returns the announced task. It asks the running agent or, if no agent runs, reads the broker's
// retained message. It returns a [MissingTaskError] if the device accepts no announcement.
//
// It does not connect to the broker while the agent runs, because the broker might close the agent's session. Brokers
// that use the user name as client id do so, as our Mosquitto configurations do.
func FetchAnnouncedTask(ctx context.Context, s *settings.Agent) (*TaskWithOrigin, error) {
	if t, err := fetchRunningAgentTask(ctx, s); t != nil || err != nil {
		return t, err
	}
	keys, err := agentconfig.AcceptedCoordinatorKeys(s)
	if err != nil {
		return nil, err
	}
	topics, err := mqtt.NewTopics(s.Broker.Prefix, s.Federation)
	if err != nil {
		return nil, err
	}
	o, _, err := agentconfig.UplinkBrokerSettings(s).SessionOptions(topics.ClientID(wire.AgentID(s.ID)))
	if err != nil {
		return nil, err
	}
	if o.ClientID == "" {
		return nil, fmt.Errorf("id: %q is not a valid device id: set it in agentd.yaml, or use --set id=ID", s.ID)
	}
	o.ClientID += "-check"
	warning := new(logging.LastWarningHandler)
	o.Logger, o.MaxReconnectDelay = slog.New(warning), time.Second
	conn, err := mqtt.Dial(ctx, o)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	f := &taskFetch{conn: conn, topics: topics, selfTestTopic: topics.SelfTest(wire.AgentID(s.ID)), acceptedKeys: keys,
		loadGroupKey: func(group uint64) (wire.SealKey, error) {
			return fetch.LoadGroupKey(store.LocalDisk, s.FederationFolder(), group)
		}}
	blob, err := f.awaitTask(ctx)
	if errors.Is(err, errNoLink) {
		err = fmt.Errorf("cannot connect to the broker %s: %s", o.URL, warning.LastTextOr("no reply"))
	}
	if err != nil {
		return nil, err
	}
	t, err := wire.DecodeTask(blob)
	return &TaskWithOrigin{Task: t, Origin: "the broker " + o.URL}, err
}

var errNoLink = errors.New("no connection")

// taskFetch fetches the retained announcement and the task that it names.
type taskFetch struct {
	conn                mqtt.Conn
	topics              mqtt.Topics
	selfTestTopic       string // topic of the agent's self-test of the broker
	acceptedKeys        []ed25519.PublicKey
	loadGroupKey        func(group uint64) (wire.SealKey, error)
	isLinkUp            bool
	searchingForCause   bool                  // true while the cause of a missing announcement is being searched
	hasSelfTestReturned bool                  // true after the broker has returned the self-test message
	otherFederations    []wire.FederationName // federations whose announcements the broker retains
	// sameKeyFederation is another federation whose announcement has an accepted key. The name is empty if no such
	// federation was found.
	sameKeyFederation wire.FederationName
	puller            *transfer.BlobPuller // downloads the task; nil before the announcement has arrived
	taskHash          string
	taskBytes         []byte
}

// verifyAnnouncement checks the sender and the signature of a message and returns its announcement.
func (f *taskFetch) verifyAnnouncement(p []byte) (wire.Announcement, error) {
	e, err := wire.ParseEnvelope(p)
	if err == nil && (e.Federation != wire.FederationName(f.topics.Federation) || e.Sender != wire.CoordinatorID) {
		err = fmt.Errorf("the message was sent by %s in the federation %s", e.Sender, e.Federation)
	}
	if err != nil {
		return wire.Announcement{}, fmt.Errorf("invalid announcement on %s: %w", f.topics.Announcement(), err)
	}
	if !f.signedByAcceptedKey(&e) {
		return wire.Announcement{}, newMissingTaskError(f.topics.Federation, announcement.UntrustedKey)
	}
	return wire.DecodeAnnouncement(e.Body)
}

// signedByAcceptedKey reports whether the message is signed with an accepted key.
func (f *taskFetch) signedByAcceptedKey(e *wire.Envelope) bool {
	return slices.ContainsFunc(f.acceptedKeys, func(k ed25519.PublicKey) bool { return e.Verify(k) == nil })
}

// startMissingCauseSearch starts the search for the cause of a missing announcement. It tests whether the broker's
// access rules let this user publish and subscribe, and which federations have announcements.
func (f *taskFetch) startMissingCauseSearch() error {
	f.searchingForCause = true
	f.conn.Subscribe(mqtt.AtMostOnce, f.selfTestTopic)
	f.conn.Subscribe(mqtt.AtMostOnce, f.topics.AllAnnouncementsFilter())
	return f.conn.Publish(mqtt.Message{Topic: f.selfTestTopic, QoS: mqtt.AtMostOnce, Payload: []byte("check")})
}

// missingAnnouncementError returns the reason for a missing announcement as an error.
func (f *taskFetch) missingAnnouncementError() error {
	switch {
	case f.sameKeyFederation != "":
		return newMissingTaskError(f.topics.Federation, announcement.OtherFederation, f.sameKeyFederation)
	case !f.hasSelfTestReturned:
		return newMissingTaskError(f.topics.Federation, announcement.AccessDenied)
	}
	return newMissingTaskError(f.topics.Federation, announcement.NotRetained, f.otherFederations...)
}

func (f *taskFetch) recordOtherFederation(p []byte) {
	e, err := wire.ParseEnvelope(p)
	if err != nil || e.Sender != wire.CoordinatorID {
		return
	}
	if f.signedByAcceptedKey(&e) {
		f.sameKeyFederation = e.Federation
	}
	if !slices.Contains(f.otherFederations, e.Federation) && len(f.otherFederations) < maxOtherFederations {
		f.otherFederations = append(f.otherFederations, e.Federation)
	}
}

// maxOtherFederations is the maximum number of federation names in an error.
const maxOtherFederations = 8

// awaitTask waits for the task and returns its encoding.
func (f *taskFetch) awaitTask(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 4*brokerTimeout)
	defer cancel()
	f.conn.Subscribe(mqtt.AtMostOnce, f.topics.Announcement())
	timer := time.NewTimer(brokerTimeout)
	defer timer.Stop()
	for f.taskBytes == nil {
		var err error
		select {
		case <-ctx.Done():
			err = fmt.Errorf("timeout: the task did not arrive within %v: %w", 4*brokerTimeout, ctx.Err())
		case e := <-f.conn.Events():
			if _, up := e.(mqtt.LinkUp); up {
				f.isLinkUp = true
				timer.Reset(brokerTimeout)
			}
			err = f.handleMQTTEvent(e)
		case <-timer.C:
			switch {
			case !f.isLinkUp:
				err = errNoLink
			case f.puller == nil && !f.searchingForCause:
				err = f.startMissingCauseSearch()
				timer.Reset(causeSearchTime)
			case f.puller == nil:
				err = f.missingAnnouncementError()
			default:
				err = f.stepTaskPuller(transfer.Tick{})
			}
		}
		if err != nil {
			return nil, err
		}
		if f.puller != nil {
			if at, due := f.puller.Deadline(); due {
				timer.Reset(time.Until(at))
			}
		}
	}
	return f.taskBytes, nil
}

func (f *taskFetch) handleMQTTEvent(e mqtt.Event) error {
	switch e := e.(type) {
	case mqtt.SubscriptionRefused:
		if f.searchingForCause && e.Filter == f.topics.AllAnnouncementsFilter() {
			f.conn.Unsubscribe(e.Filter)
			return nil
		}
		return &MissingTaskError{announcement.AccessDenied,
			fmt.Errorf("the broker rejected the subscription to %s", e.Filter),
			mqtt.AccessRulesRemedy}
	case mqtt.MessageReceived:
		kind, _, id, part, _ := f.topics.ParseTopic(e.Topic)
		switch {
		case f.topics.IsForeignAnnouncement(e.Topic):
			f.recordOtherFederation(e.Payload)
			return nil
		case e.Topic == f.selfTestTopic:
			f.hasSelfTestReturned = true
			return nil
		case kind == mqtt.KindBlob && f.puller != nil && id == f.taskHash:
			return f.stepTaskPuller(transfer.PartReceived{PartName: part, Payload: e.Payload})
		case kind != mqtt.KindAnnouncement || f.puller != nil || len(e.Payload) == 0:
			return nil
		}
		a, err := f.verifyAnnouncement(e.Payload)
		if err != nil {
			return err
		}
		if !a.Task.IsSet() {
			return errors.New("the coordinator's announcement contains no task")
		}
		cfg := transfer.DefaultPullerConfig()
		cfg.MaxBlobBytes = maxTaskBytes
		if a.Task.GroupKeyID != 0 {
			key, err := f.loadGroupKey(a.Task.GroupKeyID)
			switch {
			case err != nil:
				return errors.New("the task is encrypted, and this device does not have the key yet: start agentd, " +
					"which requests the key from the coordinator")
			case len(a.Task.SealedInline) == 0:
				cfg.Sealer = key.BlobSealer(a.Task.Hash)
			default:
				if a.Task, err = a.Task.OpenSealed(key); err != nil {
					return fmt.Errorf("cannot decrypt the task: %w", err)
				}
			}
		}
		f.taskHash = a.Task.Hash.TopicLevel()
		f.puller = transfer.NewBlobPuller(cfg, a.Task, rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0)))
		return f.stepTaskPuller(transfer.Start{})
	}
	return nil
}

// stepTaskPuller passes an event to the puller and executes the puller's requests.
func (f *taskFetch) stepTaskPuller(ev transfer.PullEvent) error {
	for _, e := range f.puller.Step(time.Now(), ev) {
		switch e := e.(type) {
		case transfer.SubscribeParts:
			f.conn.Subscribe(mqtt.AtMostOnce, f.chunkTopics(e.Parts)...)
		case transfer.UnsubscribeParts:
			f.conn.Unsubscribe(f.chunkTopics(e.Parts)...)
		case transfer.OpenStorage:
			return f.stepTaskPuller(transfer.StorageOpened{BlobDigest: e.Manifest.Hash,
				Storage: transfer.NewMemoryChunkStorage(int(e.Manifest.BlobLength))})
		case transfer.PullDone:
			f.taskBytes = bytes.Join(e.Storage.(*transfer.MemoryChunkStorage).ChunkPayloads(), nil)
		case transfer.PullFailed:
			return fmt.Errorf("cannot fetch the task: %w", e.Err)
		}
	}
	return nil
}

func (f *taskFetch) chunkTopics(names []string) []string {
	topics := make([]string, len(names))
	for i, name := range names {
		topics[i] = f.topics.BlobPart(f.taskHash, name)
	}
	return topics
}
