package conformance

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/internal/testkit/hosts"
	"github.com/fedmesh/fedmesh/internal/testkit/mqtttest"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/mqtt/transfer"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// sink receives updates and stores them in a spool (folder of received updates), as a coordinator does.
type sink struct {
	session  *mqtt.Session
	topics   mqtt.Topics
	key      ed25519.PrivateKey
	receiver *transfer.UpdateReceiver
	dir      string
	spool    *store.UpdateSpool
	accepted map[wire.AgentID]wire.Digest
	told     func(accepted int)
	results  chan func()
	jobs     sync.WaitGroup
	sequence uint64
	ctx      context.Context
	failure  error
}

var spoolID = store.RoundSpoolID{Run: 1, Round: 1}

func openSpool(t *testing.T, dir string) *store.UpdateSpool {
	t.Helper()
	s, err := store.LocalDisk.OpenSpool(dir, spoolID, func(problem string) { t.Errorf("the spool: %s", problem) })
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// newSink returns a sink with the limits that the daemon uses. After each accepted update, the sink calls told with the
// number of accepted updates.
func newSink(t *testing.T, o mqtt.Options, key ed25519.PrivateKey, told func(int)) *sink {
	t.Helper()
	o.MailboxMessages, o.MailboxBytes, o.OutboxMessages = 16384, 256<<20, 16384
	k := &sink{
		session: mqtttest.Dial(t, o), topics: hosts.TopicsOf(t, federation), key: key,
		receiver: transfer.NewUpdateReceiver(transfer.DefaultReceiverConfig()),
		dir:      filepath.Join(t.TempDir(), "spool"), accepted: map[wire.AgentID]wire.Digest{}, told: told,
		results: make(chan func()),
	}
	k.spool = openSpool(t, k.dir)
	k.session.Subscribe(mqtt.AtMostOnce, k.topics.AllUpdatePartsFilter())
	mqtttest.SyncWithBroker(t, k.session)
	return k
}

// run receives updates until ctx ends. run then closes the spool (folder of received updates).
func (k *sink) run(ctx context.Context) {
	k.ctx = ctx
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case e := <-k.session.Events():
			if m, ok := e.(mqtt.MessageReceived); ok {
				if err := k.take(m.Message); err != nil && k.failure == nil {
					k.failure = err
				}
			}
		case result := <-k.results:
			result()
		case <-timer.C:
			k.step(transfer.Tick{})
		}
		if at, ok := k.receiver.Deadline(); ok {
			timer.Reset(time.Until(at))
		}
	}
	k.jobs.Wait()
	if err := k.spool.Close(); err != nil && k.failure == nil {
		k.failure = err
	}
}

func (k *sink) take(m mqtt.Message) error {
	kind, id, transferID, part, err := k.topics.ParseTopic(m.Topic)
	if err != nil || kind != mqtt.KindUpdate {
		return fmt.Errorf("topic %s: %w", m.Topic, err)
	}
	if part != transfer.ManifestPartName {
		k.step(transfer.ChunkReceived{Agent: id, UploadID: transferID, Payload: m.Payload})
		return nil
	}
	e, err := wire.ParseEnvelope(m.Payload)
	if err != nil {
		return err
	}
	u, err := wire.DecodeUpdate(e.Body)
	if err != nil {
		return err
	}
	if k.accepted[id] == u.PayloadManifest.Hash {
		k.accept(id)
		return nil
	}
	k.step(transfer.UpdateOffer{Agent: id, AgentBootEpoch: e.Epoch, Manifest: u.PayloadManifest,
		InlinePayload: u.InlinePayload})
	return nil
}

func (k *sink) step(ev transfer.ReceiveEvent) {
	for _, e := range k.receiver.Step(time.Now(), ev) {
		switch e := e.(type) {
		case transfer.OpenStorage:
			k.step(transfer.StorageOpened{Agent: e.Agent, BlobDigest: e.Manifest.Hash,
				Storage: transfer.NewMemoryChunkStorage(int(e.Manifest.BlobLength))})
		case transfer.GrantCredit:
			k.tell(e.Agent, wire.TypeChunkCredit, e.Credit.Body())
		case transfer.UpdateComplete:
			k.keep(e)
		case transfer.RefuseUpdate:
			k.failure = fmt.Errorf("%s is refused: %v", e.Agent, e.Reason)
		}
	}
}

// keep stores a completely received update in the spool (folder of received updates) and then accepts it.
func (k *sink) keep(e transfer.UpdateComplete) {
	payload := bytes.Join(e.Storage.(*transfer.MemoryChunkStorage).ChunkPayloads(), nil)
	k.jobs.Go(func() {
		err := k.spool.Put(store.SpoolEntry{Agent: string(e.Agent), PayloadDigest: e.Digest,
			PayloadSize: int64(len(payload))},
			payload)
		select {
		case <-k.ctx.Done():
		case k.results <- func() {
			if err != nil {
				k.failure = err
				return
			}
			k.step(transfer.UpdateReleased{Agent: e.Agent})
			k.accepted[e.Agent] = e.Digest
			k.accept(e.Agent)
			k.told(len(k.accepted))
		}:
		}
	})
}

func (k *sink) accept(id wire.AgentID) {
	m := wire.UpdateAccepted{Update: k.accepted[id]}
	k.tell(id, wire.TypeUpdateAccepted, m.Body())
}

// tell sends a message to an agent once. An agent that does not receive it asks again.
func (k *sink) tell(id wire.AgentID, typ wire.MessageType, body []byte) {
	k.sequence++
	h := wire.Header{Root: wire.FirstRootVersion,
		Type: typ, Federation: federation, Sender: wire.CoordinatorID, Epoch: 1, Run: 1, Round: 1,
		Sequence: k.sequence}
	_ = k.session.Publish(mqtt.Message{Topic: k.topics.CoordinatorToAgent(id), QoS: mqtt.AtLeastOnce,
		Payload: wire.SignEnvelope(nil, h, body, k.key)})
}
