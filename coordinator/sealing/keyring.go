// Package sealing manages the secrets with which the coordinator encrypts and decrypts messages and blobs. It derives
// keys from these secrets and from the agents' keys.
package sealing

import (
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/fedmesh/fedmesh/coordinator/enrolled"
	"github.com/fedmesh/fedmesh/coordinator/publish"
	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

const (
	// secretRounds is the number of rounds for which a secret is used.
	secretRounds = 1000
)

// Config configures a Keyring.
type Config struct {
	CoordinatorKey ed25519.PrivateKey // private key of the coordinator
	Folder         *runs.StateFolder  // state folder, which contains the secrets file
	FillRandom     func(b []byte)     // fills b with random bytes for a secret
	// FindAgentPublicKey returns the public key of an agent, or nil if the agent is not listed.
	FindAgentPublicKey func(agent wire.AgentID) ed25519.PublicKey
	Logger             *slog.Logger
}

// Keyring holds the current secret, whose public key is announced, and the previous secret, for messages in transit. A
// secret is written to disk before its public key is announced. All methods must be called on the owner goroutine.
type Keyring struct {
	cfg             Config
	secrets         []secretWithKeys // current and previous secret, newest first
	savedSecrets    savedSecrets
	agentListDigest wire.Digest // digest of the list of agents
	// needsRenewal is true if an agent that may have the current group key was removed from the list of agents.
	needsRenewal bool

	// announcedGroupKeyID is the id of the group key of the announced blobs; 0 before the first announcement.
	announcedGroupKeyID   uint64
	groupKeyIDByAgent     map[wire.AgentID]uint64 // id of the newest group key that each agent is known to have
	wasJustSentKeyByAgent map[wire.AgentID]bool   // agents that were sent the group key and have not sent a hello since

	sealKeysByPair      map[sealKeysID]wire.AgentSealKeys
	selectionKeyByAgent map[wire.AgentID]wire.SelectionKey
}

// savedSecrets is the content of the secrets file.
type savedSecrets struct {
	Secrets         []wire.SealSecret // encryption secrets, newest first; at most two
	Run             wire.RunID
	SinceRound      wire.RoundID     `json:"Since"` // first round in which the newest secret was used
	AgentListDigest wire.Digest      `json:"List"`  // digest of the list of agents that may have the keys
	RootVersion     wire.RootVersion `json:"Root"`  // version of the root document when the secret was created
}

// secretWithKeys is a secret and the keys that are derived from it.
type secretWithKeys struct {
	wire.SealSecret
	publicKey wire.X25519PublicKey
	groupKey  wire.SealKey
}

// sealKeysID identifies the keys that the coordinator shares with an agent under one secret.
type sealKeysID struct {
	agent        wire.AgentID
	announcedKey wire.X25519PublicKey
}

// LoadKeyring loads the secrets of the previous process. If the file is missing or damaged, RenewSecretIfDue creates
// new ones, and agents use the newly announced key.
func LoadKeyring(cfg Config, list *enrolled.List) (*Keyring, error) {
	k := &Keyring{cfg: cfg, groupKeyIDByAgent: map[wire.AgentID]uint64{},
		wasJustSentKeyByAgent: map[wire.AgentID]bool{},
		sealKeysByPair:        map[sealKeysID]wire.AgentSealKeys{},
		selectionKeyByAgent:   map[wire.AgentID]wire.SelectionKey{}}
	saved, err := loadSecretsFile(cfg.Folder)
	switch {
	case errors.Is(err, store.ErrNoRecord):
	case store.IsDamage(err):
		aside, failed := cfg.Folder.SealSlots.SetAside()
		if failed != nil {
			return nil, failed
		}
		cfg.Logger.Warn("cannot read the encryption keys", "err", err, "consequence", runs.SealKeys.LossConsequence,
			"moved_to", aside)
	case err != nil:
		return nil, err
	}
	if err := k.useSecrets(saved); err != nil {
		return nil, err
	}
	if k.agentListDigest, err = list.Digest(); err != nil {
		return nil, err
	}
	k.needsRenewal = k.agentListDigest != saved.AgentListDigest // it is unknown which agents were removed
	if len(k.secrets) > 0 {
		k.announcedGroupKeyID = k.secrets[0].groupKey.ID()
	}
	return k, nil
}

// useSecrets derives the keys of the given secrets and discards the keys of other secrets.
func (k *Keyring) useSecrets(saved savedSecrets) error {
	k.savedSecrets, k.secrets = saved, nil
	for _, x := range saved.Secrets {
		public, err := x.PublicKey()
		if err != nil {
			return fmt.Errorf("cannot derive the encryption key: %w", err)
		}
		group, err := x.GroupSealKey()
		if err != nil {
			return fmt.Errorf("cannot derive the group key: %w", err)
		}
		k.secrets = append(k.secrets, secretWithKeys{x, public, group})
	}
	for p := range k.sealKeysByPair {
		if !k.hasAnnouncedKey(p.announcedKey) {
			delete(k.sealKeysByPair, p)
		}
	}
	return nil
}

func (k *Keyring) hasAnnouncedKey(announced wire.X25519PublicKey) bool {
	return slices.ContainsFunc(k.secrets, func(s secretWithKeys) bool { return s.publicKey == announced })
}

// RenewSecretIfDue creates a new secret if the current secret may not be used in the given round. A secret expires
// after secretRounds rounds, when an agent is removed, and when the root document changes, which may lock out a thief
// of the coordinator's host. write must perform the write to the folder; if it fails, the coordinator stops.
func (k *Keyring) RenewSecretIfDue(run wire.RunID, round wire.RoundID, root wire.RootVersion,
	write func(do func() error) error) error {
	next := k.savedSecrets
	next.AgentListDigest, next.RootVersion = k.agentListDigest, root
	switch {
	case k.needsRenewal || len(next.Secrets) == 0 || next.RootVersion != k.savedSecrets.RootVersion ||
		next.Run == run && round >= next.SinceRound+secretRounds:
		fresh := wire.SealSecret{}
		k.cfg.FillRandom(fresh[:])
		next.Secrets = append([]wire.SealSecret{fresh}, next.Secrets[:min(1, len(next.Secrets))]...)
		next.Run, next.SinceRound = run, round
	case next.Run != run:
		next.Run, next.SinceRound = run, round
	case next.AgentListDigest == k.savedSecrets.AgentListDigest:
		return nil
	}
	if err := write(func() error { return saveSecretsFile(k.cfg.Folder, next) }); err != nil {
		return err
	}
	k.needsRenewal = false
	return k.useSecrets(next)
}

// AnnouncedKey returns the public key with which agents encrypt messages.
func (k *Keyring) AnnouncedKey() wire.X25519PublicKey { return k.secrets[0].publicKey }

// HandleAgentListChange records that the list of agents was replaced. It requires a new secret if an agent was removed
// or its key changed.
func (k *Keyring) HandleAgentListChange(list, before *enrolled.List) {
	digest, err := list.Digest()
	complete := false // true if the new list contains all previous agents with the same keys
	if err == nil {
		complete, err = list.ContainsAllOf(before)
	}
	if err != nil {
		k.cfg.Logger.Error("cannot read the list of agents; renewing the encryption keys", "err", err)
	}
	k.agentListDigest, k.needsRenewal = digest, k.needsRenewal || !complete
}

// ForgetAgentKeys discards the state of an agent whose key may have changed.
func (k *Keyring) ForgetAgentKeys(agent wire.AgentID) {
	delete(k.groupKeyIDByAgent, agent)
	delete(k.wasJustSentKeyByAgent, agent)
	delete(k.selectionKeyByAgent, agent)
	for _, s := range k.secrets {
		delete(k.sealKeysByPair, sealKeysID{agent, s.publicKey})
	}
}

// SealBlobs encrypts the blobs of an announcement and updates its references. It omits the outcome of the last round,
// which contains only tags. SealBlobs reports whether the group key differs from the group key of the previous
// announcement.
func (k *Keyring) SealBlobs(a *wire.Announcement, blobs []publish.Blob) (resealed bool) {
	group := k.secrets[0].groupKey
	for i, b := range blobs {
		if b.Ref.Hash != a.LastRoundOutcome.Hash {
			blobs[i] = b.SealedForGroup(group)
		}
	}
	for _, ref := range []*wire.BlobRef{&a.Task, &a.BaseModel, &a.ReleasedModelFile, &a.CandidateModelFile} {
		i := slices.IndexFunc(blobs, func(b publish.Blob) bool { return b.Ref.Hash == ref.Hash })
		switch {
		case !ref.IsSet():
		case len(ref.Inline) > 0:
			*ref = ref.SealInline(group)
		case i >= 0:
			*ref = blobs[i].Ref
		}
	}
	resealed = group.ID() != k.announcedGroupKeyID
	k.announcedGroupKeyID = group.ID()
	return resealed
}

// GroupKeyFor returns the group key, which the caller must send to the agent. ok is false if no blob encrypted with
// this key was announced yet.
func (k *Keyring) GroupKeyFor(agent wire.AgentID) (key wire.GroupKeyDelivery, ok bool) {
	if k.announcedGroupKeyID == 0 {
		return key, false
	}
	k.groupKeyIDByAgent[agent], k.wasJustSentKeyByAgent[agent] = k.announcedGroupKeyID, true
	return wire.GroupKeyDelivery{Key: k.secrets[0].groupKey}, true
}

// LacksGroupKey reports whether an agent may lack the group key of the announced blobs.
func (k *Keyring) LacksGroupKey(agent wire.AgentID) bool {
	return k.announcedGroupKeyID != 0 && k.groupKeyIDByAgent[agent] != k.announcedGroupKeyID
}

// HandleHello reports whether a hello requests the group key, and whether it contains anything else to handle. An agent
// that was just sent the key, or that requests missing parts, may not have its task yet; the agent sends another hello
// later. followsPresent is true if the hello refers to the current announcement.
func (k *Keyring) HandleHello(agent wire.AgentID, m *wire.Hello, followsPresent bool) (asksForKey, saysMore bool) {
	justSent := k.wasJustSentKeyByAgent[agent]
	delete(k.wasJustSentKeyByAgent, agent)
	switch {
	case m.MissingGroupKeyID != 0 && m.MissingGroupKeyID == k.announcedGroupKeyID:
		return true, m.UnfitReason != wire.DeclineFetchFailed
	case m.MissingGroupKeyID == 0 && followsPresent:
		k.groupKeyIDByAgent[agent] = k.announcedGroupKeyID
		return false, !justSent && m.MissingParts.BlobDigest.IsZero() || m.UnfitReason != wire.DeclineFetchFailed
	}
	return false, true
}

// SelectionKey returns the key with which an announcement marks an agent as selected, so that only this agent can
// recognise the selection. It returns an error if the agent's key has no X25519 form.
func (k *Keyring) SelectionKey(agent wire.AgentID) (wire.SelectionKey, error) {
	key, known := k.selectionKeyByAgent[agent]
	if known {
		return key, nil
	}
	key, err := wire.NewSelectionKey(k.cfg.CoordinatorKey, k.cfg.FindAgentPublicKey(agent))
	if err == nil {
		k.selectionKeyByAgent[agent] = key
	}
	return key, err
}

// SealRecipientFor returns the encryption key for messages to an agent. It returns nil if no secret exists yet or the
// agent's key has no X25519 form.
func (k *Keyring) SealRecipientFor(agent wire.AgentID) *host.SealRecipient {
	if len(k.secrets) == 0 {
		return nil
	}
	s := &k.secrets[0]
	keys, known := k.sealKeysByPair[sealKeysID{agent, s.publicKey}]
	if !known {
		var err error
		if keys, err = s.AgentSealKeys(k.cfg.FindAgentPublicKey(agent)); err != nil {
			k.cfg.Logger.Debug("cannot derive the keys that encrypt messages for an agent", "agent", agent, "err", err)
			return nil
		}
		k.sealKeysByPair[sealKeysID{agent, s.publicKey}] = keys
	}
	return &host.SealRecipient{AnnouncedKey: s.publicKey, Key: keys.ToAgentKey}
}

// OpenedMessage is a decrypted message of an agent with its decryption key. SealKey is nil for message types that are
// never encrypted.
type OpenedMessage struct {
	wire.Envelope
	SealKey *wire.SealKey
}

// NewMessageOpener returns two functions for an agent's message. open decrypts it and may run on any goroutine. keep
// caches the derived keys and must be called afterwards on the owner goroutine.
func (k *Keyring) NewMessageOpener(agent wire.AgentID, e wire.Envelope) (open func() (OpenedMessage, error),
	keep func()) {
	if e.Type != wire.TypeSealed {
		return func() (OpenedMessage, error) {
			if e.Type.MustBeSealed() {
				return OpenedMessage{}, fmt.Errorf("received an unencrypted %s: agents must encrypt messages of this "+
					"type", e.Type)
			}
			return OpenedMessage{e, nil}, nil
		}, func() {}
	}
	i := slices.IndexFunc(k.secrets, func(s secretWithKeys) bool { return wire.IsSealedToKey(e.Body, s.publicKey) })
	if i < 0 {
		return func() (OpenedMessage, error) {
			return OpenedMessage{}, errors.New("the message is encrypted with an outdated key that the coordinator " +
				"no longer announces")
		}, func() {}
	}
	s, public := k.secrets[i], k.cfg.FindAgentPublicKey(agent)
	keys, known := k.sealKeysByPair[sealKeysID{agent, s.publicKey}]
	open = func() (OpenedMessage, error) {
		if !known {
			var err error
			if keys, err = s.AgentSealKeys(public); err != nil {
				return OpenedMessage{}, err
			}
		}
		opened, err := keys.FromAgentKey.OpenMessage(e)
		return OpenedMessage{opened, &keys.FromAgentKey}, err
	}
	return open, func() {
		if !known && keys != (wire.AgentSealKeys{}) && k.hasAnnouncedKey(s.publicKey) {
			k.sealKeysByPair[sealKeysID{agent, s.publicKey}] = keys
		}
	}
}

func saveSecretsFile(d *runs.StateFolder, s savedSecrets) error {
	body, err := json.Marshal(s)
	if err == nil {
		err = d.SealSlots.WriteAndProtect(body)
	}
	return err
}

func loadSecretsFile(d *runs.StateFolder) (s savedSecrets, err error) {
	found, err := d.SealSlots.Load(nil)
	if err != nil {
		return s, err
	}
	return s, d.ParseJSONFile(runs.SealKeys, found.Body, &s)
}
