package coordinator

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/fedmesh/fedmesh/coordinator/devices"
	"github.com/fedmesh/fedmesh/coordinator/enrolled"
	"github.com/fedmesh/fedmesh/coordinator/publish"
	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// sealRounds is for how many rounds a secret serves.
const sealRounds = 1000

// sealKeyring is what the coordinator seals and opens with. A secret is on disk before its key is announced, and the
// one before it still opens what was on its way.
type sealKeyring struct {
	secrets []sealSecret // the newest first; at most two
	saved   savedSeals
	// ID of the key under which blobs are announced; 0 before the first announcement
	announcedKeyID    uint64
	groupKeyIDByAgent map[wire.AgentID]uint64 // the key of the group that an agent has, as far as is known
	agentsJustSentKey map[wire.AgentID]bool   // has been given the key, and has not said anything since
	agentListDigest   wire.Digest             // of the agents that may take part now
	needsRekey        bool                    // an agent that may hold the newest key has left the list
	sealKeysByPair    map[sealPairKey]wire.SealKeys
}

// savedSeals is what the file of seals holds.
type savedSeals struct {
	Secrets []wire.SealSecret // the newest first; at most two
	Run     wire.RunID
	Since   wire.RoundID     // the first round of the newest one
	List    wire.Digest      // the list of agents to which its keys were given
	Root    wire.RootVersion // the version of the root document under which it was drawn
}

// sealSecret is a secret with what is made of it.
type sealSecret struct {
	wire.SealSecret
	public wire.X25519PublicKey
	group  wire.SealKey
}

// sealPairKey names the keys that an agent shares with a secret.
type sealPairKey struct {
	agent     wire.AgentID
	announced wire.X25519PublicKey
}

// load takes the secrets of the process before. Without them, or if the file is damaged, there are new ones: agents
// seal to the key that is announced.
func (s *sealKeyring) load(c *Coordinator) error {
	s.sealKeysByPair, s.groupKeyIDByAgent = map[sealPairKey]wire.SealKeys{}, map[wire.AgentID]uint64{}
	s.agentsJustSentKey = map[wire.AgentID]bool{}
	saved, err := loadSeals(c.stateFolder)
	switch {
	case errors.Is(err, store.ErrNoRecord):
	case store.IsDamage(err):
		aside, failed := c.stateFolder.SealSlots.SetAside()
		if failed != nil {
			return failed
		}
		c.cfg.Logger.Warn("the keys of seals cannot be read; new ones take their place", "err", err, "moved_to", aside)
	case err != nil:
		return err
	}
	if err := s.useSecrets(saved); err != nil {
		return err
	}
	if s.agentListDigest, err = c.devices.List().Digest(); err != nil {
		return err
	}
	s.needsRekey = s.agentListDigest != saved.List // who has gone meanwhile is not known
	if len(s.secrets) > 0 {
		s.announcedKeyID = s.secrets[0].group.ID()
	}
	return nil
}

// useSecrets makes secrets those that count.
func (s *sealKeyring) useSecrets(saved savedSeals) error {
	s.saved, s.secrets = saved, nil
	for _, x := range saved.Secrets {
		public, err := x.Public()
		if err != nil {
			return fmt.Errorf("the key of seals: %w", err)
		}
		group, err := x.GroupSealKey()
		if err != nil {
			return fmt.Errorf("the key of the group: %w", err)
		}
		s.secrets = append(s.secrets, sealSecret{x, public, group})
	}
	for p := range s.sealKeysByPair {
		if s.secretOf(p.announced) == nil {
			delete(s.sealKeysByPair, p)
		}
	}
	return nil
}

func (s *sealKeyring) secretOf(announced wire.X25519PublicKey) *sealSecret {
	for i := range s.secrets {
		if s.secrets[i].public == announced {
			return &s.secrets[i]
		}
	}
	return nil
}

// renewSealSecret sees to a secret that may be used for a round: a new one if the last was given to agents that may no
// longer take part, has served its time, or was drawn under an earlier root document, by which a thief of the
// coordinator's host may be locked out. The error is that the coordinator stops before it is on disk.
func (c *Coordinator) renewSealSecret(round wire.RoundID) error {
	s := &c.sealKeyring
	next := s.saved
	next.List, next.Root = s.agentListDigest, c.cfg.rootVersion()
	switch {
	case s.needsRekey || len(next.Secrets) == 0 || next.Root != s.saved.Root ||
		next.Run == c.runID && round >= next.Since+sealRounds:
		fresh := wire.SealSecret{}
		c.cfg.FillRandom(fresh[:])
		next.Secrets = append([]wire.SealSecret{fresh}, next.Secrets[:min(1, len(next.Secrets))]...)
		next.Run, next.Since = c.runID, round
	case next.Run != c.runID:
		next.Run, next.Since = c.runID, round
	case next.List == s.saved.List:
		return nil
	}
	if err := c.retryWriteBlocking("save the keys of seals",
		func() error { return saveSeals(c.stateFolder, next) }); err != nil {
		return err
	}
	s.needsRekey = false
	return s.useSecrets(next)
}

// announcedKey is the key that agents seal to.
func (s *sealKeyring) announcedKey() wire.X25519PublicKey { return s.secrets[0].public }

// noteAgentListChange takes note of a list that replaces another.
func (s *sealKeyring) noteAgentListChange(c *Coordinator, before *enrolled.List) {
	sum, err := c.devices.List().Digest()
	kept := false
	if err == nil {
		kept, err = c.devices.List().Contains(before)
	}
	if err != nil {
		c.cfg.Logger.Error("the list of agents cannot be read; the keys of seals are changed", "err", err)
	}
	s.agentListDigest, s.needsRekey = sum, s.needsRekey || !kept
}

// forget forgets an agent, whose key may have changed.
func (s *sealKeyring) forget(agent wire.AgentID) {
	delete(s.groupKeyIDByAgent, agent)
	delete(s.agentsJustSentKey, agent)
	for _, x := range s.secrets {
		delete(s.sealKeysByPair, sealPairKey{agent, x.public})
	}
}

// sealBlobs seals the blobs that an announcement names. The outcome stays open: it holds fates only, by tags.
func (c *Coordinator) sealBlobs(a *wire.Announcement, blobs []publish.Blob) (resealed bool) {
	group := c.sealKeyring.secrets[0].group
	for i, b := range blobs {
		if b.Ref.Hash != a.LastRoundOutcome.Hash {
			blobs[i] = b.SealedForGroup(group)
		}
	}
	for _, ref := range []*wire.BlobRef{&a.Task, &a.BaseModel, &a.ReleasedModelFile, &a.CandidateModelFile} {
		k := slices.IndexFunc(blobs, func(b publish.Blob) bool { return b.Ref.Hash == ref.Hash })
		switch {
		case !ref.Present():
		case len(ref.Inline) > 0:
			*ref = ref.Seal(group)
		case k >= 0:
			*ref = blobs[k].Ref
		}
	}
	resealed = group.ID() != c.sealKeyring.announcedKeyID
	c.sealKeyring.announcedKeyID = group.ID()
	return resealed
}

// sendGroupKey gives an agent the key of the group, once blobs have been announced under it.
func (c *Coordinator) sendGroupKey(agent wire.AgentID) {
	s := &c.sealKeyring
	if s.announcedKeyID != 0 {
		m := wire.GroupKey{Key: s.secrets[0].group}
		c.sendToAgent(agent, wire.TypeKey, c.runID, c.currentRound(), m.Body())
		s.groupKeyIDByAgent[agent], s.agentsJustSentKey[agent] = s.announcedKeyID, true
	}
}

// sendGroupKeyToParticipants gives the key to the participants of a round that is announced, as far as they are not
// known to have it. Others ask for it in a hello.
func (c *Coordinator) sendGroupKeyToParticipants() {
	if c.sealKeyring.announcedKeyID == 0 || c.guard.Present().Phase != wire.PhaseOpen {
		return
	}
	for _, p := range c.machine.Record().Participants {
		if c.sealKeyring.groupKeyIDByAgent[p.Agent] != c.sealKeyring.announcedKeyID {
			c.sendGroupKey(p.Agent)
		}
	}
}

// answerKeyRequest answers the hello of an agent that asks for the key. It reports whether the hello says more than
// that: an agent that cannot read its task says another one when it can, and one that was given the key just now, or
// asks for parts, may not have its task yet.
func (c *Coordinator) answerKeyRequest(agent wire.AgentID, m *wire.Hello) bool {
	s := &c.sealKeyring
	given := s.agentsJustSentKey[agent]
	delete(s.agentsJustSentKey, agent)
	switch {
	case m.MissingGroupKeyID != 0 && m.MissingGroupKeyID == s.announcedKeyID:
		c.sendGroupKey(agent)
		return m.UnfitReason != wire.DeclineFetch
	case m.MissingGroupKeyID == 0 && m.FollowedAnnouncement == c.publisher.Digest():
		s.groupKeyIDByAgent[agent] = s.announcedKeyID
		return !given && m.MissingParts.Blob.IsZero() || m.UnfitReason != wire.DeclineFetch
	}
	return true
}

// sealKeysWithAgent returns the keys that an agent shares with a secret, if they are known.
func (s *sealKeyring) sealKeysWithAgent(agent wire.AgentID, of *sealSecret) (wire.SealKeys, bool) {
	p, known := s.sealKeysByPair[sealPairKey{agent, of.public}]
	return p, known
}

// sealRecipientOf returns the key for messages to an agent; nil if no secret was made yet, or the agent's key has no
// X25519 form.
func (c *Coordinator) sealRecipientOf(agent wire.AgentID) *host.SealRecipient {
	s := &c.sealKeyring
	if len(s.secrets) == 0 {
		return nil
	}
	of := &s.secrets[0]
	p, known := s.sealKeysWithAgent(agent, of)
	if !known {
		var err error
		if p, err = of.AgentSealKeys(c.devices.Key(agent)); err != nil {
			c.cfg.Logger.Debug("nothing can be sealed for an agent", "agent", agent, "err", err)
			return nil
		}
		s.sealKeysByPair[sealPairKey{agent, of.public}] = p
	}
	return &host.SealRecipient{AnnouncedKey: of.public, Key: p.ToAgent}
}

// unsealedMessage is a message of an agent, and the key with which it was sealed; nil for a type that is never sealed.
type unsealedMessage struct {
	wire.Envelope
	sealKey *wire.SealKey
}

// messageOpener returns a function that opens an agent's message, beside the owner, and what the owner does with the
// keys that were made for that.
func (c *Coordinator) messageOpener(agent wire.AgentID, e wire.Envelope) (open func() (unsealedMessage, error),
	keep func()) {
	if e.Type != wire.TypeSealed {
		return func() (unsealedMessage, error) {
			if e.Type.MustBeSealed() {
				return unsealedMessage{}, host.NewDropError(devices.DropSealed, "a %s that is not sealed", e.Type)
			}
			return unsealedMessage{e, nil}, nil
		}, func() {}
	}
	s, public := &c.sealKeyring, c.devices.Key(agent)
	for i := range s.secrets {
		of := s.secrets[i]
		if !wire.SealedTo(e.Body, of.public) {
			continue
		}
		p, known := s.sealKeysWithAgent(agent, &of)
		open = func() (unsealedMessage, error) {
			if !known {
				var err error
				if p, err = of.AgentSealKeys(public); err != nil {
					return unsealedMessage{}, host.NewDropError(devices.DropSealed, "%w", err)
				}
			}
			opened, err := p.FromAgent.OpenMessage(e)
			if err != nil {
				return unsealedMessage{}, host.NewDropError(devices.DropSealed, "%w", err)
			}
			return unsealedMessage{opened, &p.FromAgent}, nil
		}
		return open, func() {
			if !known && p != (wire.SealKeys{}) && s.secretOf(of.public) != nil {
				s.sealKeysByPair[sealPairKey{agent, of.public}] = p
			}
		}
	}
	return func() (unsealedMessage, error) {
		return unsealedMessage{}, host.NewDropError(devices.DropSealed,
			"it is sealed to a key that is not announced any more")
	}, func() {}
}

// sealedVersion is the version of the file with the secrets.
const sealedVersion = 1

func saveSeals(d *runs.Folder, s savedSeals) error {
	body, err := json.Marshal(s)
	if err == nil {
		err = d.SealSlots.WriteAndProtect(sealedVersion, body)
	}
	if err == nil {
		d.SealSlots.ProtectNewest()
	}
	return err
}

func loadSeals(d *runs.Folder) (s savedSeals, err error) {
	found, err := d.SealSlots.Load(maxSeals, nil)
	switch {
	case err != nil:
		return s, err
	case found.Version != sealedVersion:
		return s, &store.VersionError{Path: d.Path(runs.SealedFile), FileVersion: found.Version,
			SupportedVersion: sealedVersion}
	}
	return s, d.ParseJSONFile(runs.SealedFile, found.Body, &s)
}

const maxSeals = 64 << 10
