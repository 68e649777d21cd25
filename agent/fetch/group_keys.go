package fetch

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/agent/state"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// maxGroupKeys is the maximum number of stored group keys: the current and the previous one.
const maxGroupKeys = 2

// minKeyRequestWait and maxKeyRequestWait bound the interval between two requests for a group key. The interval doubles
// after each request.
const (
	minKeyRequestWait = 10 * time.Second
	maxKeyRequestWait = 10 * time.Minute
)

var errNoKey = errors.New("the group key that decrypts the model or task is missing")

// unsealBlobRef returns a blob reference without encryption and, for an encrypted blob, the sealer that decrypts its
// parts. It returns errNoKey if the group key is missing.
func (f *Fetcher) unsealBlobRef(ref wire.BlobRef) (wire.BlobRef, *wire.BlobSealer, error) {
	if ref.GroupKeyID == 0 {
		return ref, nil, nil
	}
	i := f.keyIndex(ref.GroupKeyID)
	if i < 0 {
		return ref, nil, errNoKey
	}
	if len(ref.SealedInline) > 0 {
		ref, err := ref.OpenSealed(f.groupKeys[i])
		return ref, nil, err
	}
	return ref, f.groupKeys[i].BlobSealer(ref.Hash), nil
}

// keyIndex returns the index of the group key with the given ID, or -1.
func (f *Fetcher) keyIndex(id uint64) int {
	return slices.IndexFunc(f.groupKeys, func(k wire.SealKey) bool { return k.ID() == id })
}

// awaitGroupKey suspends the transfer of a blob until its group key arrives and requests the key in a hello. requested
// is true if the same blob was already waiting.
func (f *Fetcher) awaitGroupKey(n *blobFetch, requested bool) {
	if !f.AwaitsGroupKey() {
		f.keyRequestInterval = minKeyRequestWait
		f.nextKeyRequestAt = f.core.Loop.Now().Add(f.keyRequestInterval)
	}
	f.fetchByPurpose[n.purpose] = n
	switch {
	case n.purpose == Task:
		f.core.HandleRoundEvent(agentround.TaskChecked{TaskDigest: n.ref.Hash, UnfitReason: wire.DeclineFetchFailed})
	case !requested:
		f.requestHelloForStalledFetch()
	}
}

// AwaitsGroupKey reports whether a blob is waiting for its group key.
func (f *Fetcher) AwaitsGroupKey() bool {
	return slices.ContainsFunc(f.fetchByPurpose[:], func(n *blobFetch) bool { return n != nil && n.BlobPuller == nil })
}

// requestGroupKeyIfDue requests the missing group key again if the retry interval has passed.
func (f *Fetcher) requestGroupKeyIfDue(now time.Time) {
	if f.AwaitsGroupKey() && !now.Before(f.nextKeyRequestAt) {
		f.keyRequestInterval = min(2*f.keyRequestInterval, maxKeyRequestWait)
		f.nextKeyRequestAt = now.Add(f.keyRequestInterval)
		f.requestHelloForStalledFetch()
	}
}

// missingGroupKeyID returns the ID of the group key that the newest announcement uses if the agent lacks this key, and
// 0 otherwise. An agent that was not selected to answer the announcement does not request the key.
func (f *Fetcher) missingGroupKeyID() uint64 {
	a := &f.core.LastAnnouncement.Announcement
	for _, ref := range []*wire.BlobRef{&a.Task, &a.BaseModel, &a.ReleasedModelFile, &a.CandidateModelFile} {
		if ref.GroupKeyID != 0 && f.keyIndex(ref.GroupKeyID) < 0 {
			return ref.GroupKeyID
		}
	}
	return 0
}

// DirectMessageTypes implements part.DirectMessageReceiver.
func (f *Fetcher) DirectMessageTypes() []wire.MessageType {
	return []wire.MessageType{wire.TypeGroupKeyDelivery}
}

// ReceiveDirectMessage implements part.DirectMessageReceiver. It stores a received group key and starts the transfers
// that were waiting for it.
func (f *Fetcher) ReceiveDirectMessage(e *wire.Envelope) error {
	m, err := wire.DecodeGroupKeyDelivery(e.Body)
	if err != nil {
		return err
	}
	f.onAcceptanceByCoordinator()
	if slices.Contains(f.groupKeys, m.Key) {
		return nil
	}
	if m.Key.ID() != f.missingGroupKeyID() {
		return host.NewMessageDropError(part.DropUnwanted, "the received group key does not match the key named in "+
			"the announcement")
	}
	f.groupKeys = append([]wire.SealKey{m.Key}, f.groupKeys[:min(maxGroupKeys-1, len(f.groupKeys))]...)
	keys := slices.Clone(f.groupKeys)
	_ = f.core.WriteRetrier.RunWrite(state.RetriedWrite{Purpose: "save the group key",
		// If this write fails, the agent requests the key again.
		WriteFile: func() error { return saveGroupKeys(f.core.StateFolder, keys) }})
	var waiting []*blobFetch
	for p, n := range f.fetchByPurpose {
		if n != nil && n.BlobPuller == nil {
			waiting = append(waiting, n)
			f.fetchByPurpose[p] = nil
		}
	}
	f.isKeyWaitReported = false
	f.core.Observer.Observe(GroupKeyReceived{})
	for _, n := range waiting {
		f.startFetch(n)
	}
	return nil
}

func saveGroupKeys(folder state.Folder, keys []wire.SealKey) error {
	var b []byte
	for _, k := range keys {
		b = append(b, k[:]...)
	}
	return folder.SaveFile(state.GroupKeys, b)
}

// loadGroupKeys returns the group keys that are saved in the state folder.
func loadGroupKeys(folder state.Folder) (keys []wire.SealKey, err error) {
	err = folder.LoadFile(state.GroupKeys, func(b []byte) (err error) {
		keys, err = parseGroupKeys(b)
		return err
	})
	return keys, err
}

func parseGroupKeys(b []byte) (keys []wire.SealKey, err error) {
	const size = len(wire.SealKey{})
	if len(b)%size != 0 || len(b) > maxGroupKeys*size {
		return nil, fmt.Errorf("the content of the file has %d bytes, but must contain at most %d keys of %d bytes",
			len(b), maxGroupKeys,
			size)
	}
	for k := range slices.Chunk(b, size) {
		keys = append(keys, wire.SealKey(k))
	}
	return keys, nil
}

// LoadGroupKey returns the group key with the given ID from an agent's state folder, or an error if it is missing.
// Other programs on the device use it to decrypt blobs.
func LoadGroupKey(d store.Disk, dir string, id uint64) (wire.SealKey, error) {
	body, err := d.LoadStateFile(dir, state.GroupKeys)
	if err == nil {
		var keys []wire.SealKey
		keys, err = parseGroupKeys(body)
		for _, k := range keys {
			if k.ID() == id {
				return k, nil
			}
		}
	}
	return wire.SealKey{}, errors.Join(errNoKey, err)
}

// Metrics lists the metrics that the events of this package update.
var Metrics = []*observe.Metric{groupKeyAwaited}

var groupKeyAwaited = observe.Gauge("key_awaited",
	"1 if the device has requested the group key that decrypts tasks and models and has not received the key yet, 0 "+
		"otherwise.")

const groupKeyCondition = "group key"

// GroupKeyAwaited reports that the agent lacks the group key that decrypts tasks and models. The agent requests the key
// from the coordinator.
type GroupKeyAwaited struct{}

// Describe implements observe.Event.
func (GroupKeyAwaited) Describe(d *observe.EventDescription) {
	d.SetGauge(groupKeyAwaited, 1)
	d.Log(observe.Info, "group key requested")
	d.RaiseCondition(groupKeyCondition,
		"the task or a model is encrypted, and the coordinator has not sent the group key to this device yet",
		"wait a few minutes; if the key does not arrive, check with `coordinator devices list` that the device is "+
			"enrolled")
}

// GroupKeyReceived reports that the coordinator has sent the group key that decrypts tasks and models.
type GroupKeyReceived struct{}

// Describe implements observe.Event.
func (GroupKeyReceived) Describe(d *observe.EventDescription) {
	d.SetGauge(groupKeyAwaited, 0)
	d.Log(observe.Info, "group key received")
	d.ResolveCondition(groupKeyCondition)
}
