package agent

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/agent/state"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// sealingKeys is what the agent opens and seals with.
type sealingKeys struct {
	// by the keys that were announced, the newest first, what the agent is told is sealed with
	ownSealRecipients  []host.SealRecipient
	groupKeys          []wire.SealKey // under which blobs are sealed for all agents, the newest first; at most two
	blobsAwaitingKey   map[blobPurpose]blobAwaitingKey
	askAt              time.Time // when the key is asked for again
	wait               time.Duration
	keyAwaitedReported bool // that the agent asks for it
}

// blobAwaitingKey is a blob whose key the agent lacks.
type blobAwaitingKey struct {
	ref         wire.BlobRef
	failedPulls int
}

// The waits between two hellos that ask for a key double from minKeyRequestWait to maxKeyRequestWait. Lost answers are
// seldom, and each hello costs.
const (
	minKeyRequestWait = 10 * time.Second
	maxKeyRequestWait = 10 * time.Minute
)

var errNoKey = errors.New("the agent lacks the key under which it is sealed")

// openBlobRef returns the reference to a blob as the puller wants it, with its seal if it is pulled sealed.
func (s *sealingKeys) openBlobRef(ref wire.BlobRef) (wire.BlobRef, *wire.BlobSeal, error) {
	if ref.GroupKeyID == 0 {
		return ref, nil, nil
	}
	k := s.groupKeyIndex(ref.GroupKeyID)
	if k < 0 {
		return ref, nil, errNoKey
	}
	if len(ref.Sealed) > 0 {
		ref, err := ref.Open(s.groupKeys[k])
		return ref, nil, err
	}
	return ref, s.groupKeys[k].BlobSeal(ref.Hash), nil
}

// groupKeyIndex is where the key with that ID is; -1 if it is lacking.
func (s *sealingKeys) groupKeyIndex(id uint64) int {
	return slices.IndexFunc(s.groupKeys, func(k wire.SealKey) bool { return k.ID() == id })
}

// deferPullUntilKey has a blob wait for its key, for which a hello asks. Without its task the agent is not fit.
func (a *Agent) deferPullUntilKey(what blobPurpose, ref wire.BlobRef, again int, before bool) {
	s := &a.seals
	if len(s.blobsAwaitingKey) == 0 {
		s.wait = minKeyRequestWait
		s.askAt = a.owner.Now().Add(s.wait)
	}
	if s.blobsAwaitingKey == nil {
		s.blobsAwaitingKey = map[blobPurpose]blobAwaitingKey{}
	}
	s.blobsAwaitingKey[what] = blobAwaitingKey{ref, again}
	switch {
	case what == purposeTask:
		a.stepRoundMachine(round.TaskChecked{Task: ref.Hash, UnfitReason: wire.DeclineFetch})
	case !before:
		a.stepRoundMachine(a.fetchStalledEvent())
	}
}

// askForKey says hello again while the key has not come.
func (a *Agent) askForKey(now time.Time) {
	s := &a.seals
	if len(s.blobsAwaitingKey) > 0 && !now.Before(s.askAt) {
		s.wait = min(2*s.wait, maxKeyRequestWait)
		s.askAt = now.Add(s.wait)
		a.stepRoundMachine(a.fetchStalledEvent())
	}
}

// groupKeyForHello is missingGroupKeyID for a hello, which asks for it. An agent that is not drawn to answer does
// without.
func (a *Agent) groupKeyForHello() uint64 {
	id := a.missingGroupKeyID()
	if s := &a.seals; id != 0 && len(s.blobsAwaitingKey) > 0 && !s.keyAwaitedReported {
		s.keyAwaitedReported = true
		a.cfg.Observer.Observe(GroupKeyAwaited{})
	}
	return id
}

// missingGroupKeyID is the ID of the key under which the newest announcement has blobs, if the agent lacks it.
func (a *Agent) missingGroupKeyID() uint64 {
	ann := &a.lastAnnouncement.Announcement
	for _, ref := range []*wire.BlobRef{&ann.Task, &ann.BaseModel, &ann.ReleasedModelFile, &ann.CandidateModelFile} {
		if ref.GroupKeyID != 0 && a.seals.groupKeyIndex(ref.GroupKeyID) < 0 {
			return ref.GroupKeyID
		}
	}
	return 0
}

// addGroupKey takes the key of the group, and goes on with what has waited for it.
func (a *Agent) addGroupKey(key wire.SealKey) error {
	s := &a.seals
	a.noteAcceptance()
	if slices.Contains(s.groupKeys, key) {
		return nil
	}
	if key.ID() != a.missingGroupKeyID() {
		return host.NewDropError(DropUnwanted, "the key of a group that the announcement does not name")
	}
	s.groupKeys = append([]wire.SealKey{key}, s.groupKeys[:min(1, len(s.groupKeys))]...)
	groups := slices.Clone(s.groupKeys)
	_ = a.writes.Run(state.Write{Purpose: groupKeysWrite,
		Do: func() error { return saveGroupKeys(&a.cfg, groups) }}) // else it is asked for again
	waiting := s.blobsAwaitingKey
	s.blobsAwaitingKey, s.keyAwaitedReported = nil, false
	a.cfg.Observer.Observe(GroupKeyReceived{})
	for what := range purposeModelFile + 1 {
		if l, is := waiting[what]; is {
			a.startPull(l.ref, what, l.failedPulls)
		}
	}
	return nil
}

const maxGroups = 2

func saveGroupKeys(c *Config, groups []wire.SealKey) error {
	var b []byte
	for _, k := range groups {
		b = append(b, k[:]...)
	}
	return c.state().Save(state.GroupKeys, b)
}

func parseGroupKeys(b []byte) (groups []wire.SealKey, err error) {
	const size = len(wire.SealKey{})
	if len(b)%size != 0 || len(b) > maxGroups*size {
		return nil, fmt.Errorf("%d bytes, want at most %d keys of %d", len(b), maxGroups, size)
	}
	for k := range slices.Chunk(b, size) {
		groups = append(groups, wire.SealKey(k))
	}
	return groups, nil
}

// loadGroupKeys returns the keys that an earlier process was given.
func loadGroupKeys(c *Config) (groups []wire.SealKey, err error) {
	err = c.state().Load(state.GroupKeys, func(b []byte) (err error) {
		groups, err = parseGroupKeys(b)
		return err
	})
	return groups, err
}

// GroupKey returns the key with that ID from an agent's state folder: with it others on the device open what is
// announced. The error is that it is not there.
func GroupKey(d store.Disk, dir string, id uint64) (wire.SealKey, error) {
	body, err := state.Read(d, dir, state.GroupKeys)
	if err == nil {
		var groups []wire.SealKey
		groups, err = parseGroupKeys(body)
		for _, k := range groups {
			if k.ID() == id {
				return k, nil
			}
		}
	}
	return wire.SealKey{}, errors.Join(errNoKey, err)
}

// adoptSealKey derives the keys that the agent shares with the coordinator from the key in an announcement. The agent
// then seals and opens messages with these keys. An announcement older than the obeyed one is used only if the agent
// has no keys yet, so that it can reply. adoptSealKey returns a drop error if the announcement has no valid key.
func (a *Agent) adoptSealKey(order wire.AnnouncementPosition, announced wire.X25519PublicKey) error {
	if announced == (wire.X25519PublicKey{}) {
		return host.NewDropError(DropUnsealFailed,
			"the announcement has no key for sealing messages to the coordinator")
	}
	if to := a.signer.coordinatorSealKey; to != nil && (to.AnnouncedKey == announced ||
		order.Compare(a.lastObeyedPosition) < 0) {
		return nil
	}
	pair, err := wire.NewSealKeys(a.cfg.Key, announced)
	if err != nil {
		return host.NewDropError(DropUnsealFailed, "the announced sealing key is invalid: %w", err)
	}
	a.signer.coordinatorSealKey = &host.SealRecipient{AnnouncedKey: announced, Key: pair.FromAgent}
	a.seals.ownSealRecipients = append([]host.SealRecipient{{AnnouncedKey: announced, Key: pair.ToAgent}},
		a.seals.ownSealRecipients...)
	a.seals.ownSealRecipients = a.seals.ownSealRecipients[:min(len(a.seals.ownSealRecipients), 2)]
	return nil
}

// unseal returns the message that is sealed for this agent. One to a key that it has not read of may name an
// announcement that has not come.
func (a *Agent) unseal(e wire.Envelope) (wire.Envelope, error) {
	for _, r := range a.seals.ownSealRecipients {
		if wire.SealedTo(e.Body, r.AnnouncedKey) {
			opened, err := r.Key.OpenMessage(e)
			if err != nil {
				return e, host.NewDropError(DropUnsealFailed, "%w", err)
			}
			return opened, nil
		}
	}
	if !a.budget.Spent() {
		a.conn.Subscribe(mqtt.AtMostOnce, a.cfg.Topics.Announcement())
	}
	return e, host.NewDropError(DropUnsealFailed, "it is sealed by a key that no announcement has named")
}

var groupKeyAwaited = observe.Gauge("key_awaited", "Whether the device lacks the key under which tasks and models are "+
	"sealed (1), for which it asks the coordinator, or not (0).")

const groupKeyCondition = "group key"

// GroupKeyAwaited: the agent lacks the key under which tasks and models are sealed. It asks the coordinator for the
// key.
type GroupKeyAwaited struct{}

// Describe implements observe.Event.
func (GroupKeyAwaited) Describe(d *observe.Description) {
	d.Set(groupKeyAwaited, 1)
	d.Log(observe.Info, "group key requested")
	d.Fail(groupKeyCondition, "the task or a model is sealed, and the coordinator has not sent this device the key yet",
		"wait; if it takes long, check with `coordinator devices list` that the coordinator knows the device")
}

// GroupKeyReceived: the coordinator has sent the key under which tasks and models are sealed.
type GroupKeyReceived struct{}

// Describe implements observe.Event.
func (GroupKeyReceived) Describe(d *observe.Description) {
	d.Set(groupKeyAwaited, 0)
	d.Log(observe.Info, "group key received")
	d.Resolve(groupKeyCondition)
}
