package world

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/coordinator/aggregation"
	"github.com/fedmesh/fedmesh/lab/conservation"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/modelfile"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/mqtt/transfer"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// participation identifies an agent's work in a round.
type participation struct {
	run   wire.RunID
	round wire.RoundID
	agent wire.AgentID
}

// participationMessage identifies a type of message about an agent's work in a round.
type participationMessage struct {
	participation
	wire.MessageType
}

// participationEnd identifies the end of an agent's work in a round, by one process of the agent.
type participationEnd struct {
	participation
	*processLife
}

// invariantChecker verifies the invariants of the protocol. It observes the messages, disks and events of all parties.
type invariantChecker struct {
	w      *World
	schema wire.TensorSchema // tensors of a model

	// Numbers of closed rounds, of messages, and of training blocks whose parameter sums were checked.
	closed, messages, balanced int
	folds, drawings            int // number of recomputed models and of recomputed draws
	refusedAbove, clipped      int // number of refused updates and of clipped updates
	refreshes                  int // number of models converted to new column moments
	signed, verified           int // numbers of signatures that were created and verified

	// committed is the newest journal in the replicated store. It is used only if the coordinator has several machines.
	committed []byte
	// files contains the names of the files that the newest head record in the replicated store lists.
	files      []string
	turns      int                                                 // number of committed journals
	record     round.JournalRecord                                 // newest record of the coordinator's journal
	sets       map[wire.RoundID]map[wire.AgentID]round.Participant // accepted updates of each closed round
	leftOut    map[wire.RoundID][]aggregation.UpdateLeftOut
	passedOver map[wire.RoundID][]wire.AgentID // agents whose updates the aggregation rule excluded
	states     map[version]state               // state of the server optimiser
	aggregates map[version][]float64           // aggregate of each round, for rules that use the previous aggregate
	accepted   map[participation]wire.Digest   // hash of each update that the coordinator has accepted
	announced  wire.AnnouncementPosition       // position of the newest announcement
	digest     wire.Digest                     // digest of the newest announcement
	digests    map[wire.Digest]bool            // digests of all announcements
	models     map[version]wire.Digest         // hash of each announced model
	payloads   map[wire.Digest][]byte          // payloads of updates on the agents' disks, by hash
	own        map[wire.AgentID]own            // personal state saved by each agent

	opened      map[version]bool // set of rounds whose participants have been checked
	began       []time.Duration  // times of the first announcement of each round
	drawn       map[wire.RoundID][]wire.AgentID
	obeyed      map[wire.AgentID]wire.AnnouncementPosition
	said        map[participationMessage]bool
	unfitAgents map[wire.AgentID]bool // agents that declare in a hello that they cannot participate
	trainedBy   map[participation]*processLife
	ended       map[participationEnd]bool
	// mixedBy contains the parameter sums of the agents that have ended their training block in a round.
	mixedBy            map[wire.RoundID][]conservation.BlockSums
	restarted          map[wire.RoundID]bool          // rounds in which at least one agent restarted
	updateSavedAtStart map[wire.AgentID]participation // update on the agent's disk when its process started
	abandoned          map[wire.RoundID]bool

	// The following fields check the codec top_k.
	changes             map[wire.AgentID][]float32 // newest computed update of each agent, before compression
	newestUpdateByAgent map[wire.AgentID]topKUpdate
	kept                map[wire.AgentID][]float32    // residual of each agent; nil means 0
	offeredOf           map[participation]wire.Digest // hash of the update on the agent's disk
	restandardizedAfter wire.RoundID                  // last round that changed the column moments; 0 means none
	residuals           int                           // number of checked residuals

	// The following fields check evaluations at the agents.
	held              map[int]*learner.Samples[float32] // held-out rows of each agent
	scores            map[version][]scored              // scores of each model, indexed by agent
	evaluatorsByModel map[version]uint                  // bit set of the agents that reported an evaluation
	evaluations       int                               // number of finished evaluations
	lastEvaluated     version
	worse             map[wire.AgentID]version // newest model that each agent rejected as worse

	// unsettled contains the saved updates whose fate has not yet been reported to their agents.
	unsettled map[participation]wire.Digest
}

func newCheck(w *World) invariantChecker {
	_, t := w.plan.configure()
	p, err := task.Compile[float32](t)
	if err != nil {
		panic(err)
	}
	return invariantChecker{w: w, schema: p.UpdateSchema(wire.KindTraining),
		sets:    map[wire.RoundID]map[wire.AgentID]round.Participant{},
		leftOut: map[wire.RoundID][]aggregation.UpdateLeftOut{}, states: map[version]state{},
		aggregates: map[version][]float64{}, passedOver: map[wire.RoundID][]wire.AgentID{},
		accepted: map[participation]wire.Digest{}, ended: map[participationEnd]bool{}, opened: map[version]bool{},
		digests: map[wire.Digest]bool{}, said: map[participationMessage]bool{}, unfitAgents: map[wire.AgentID]bool{},
		payloads: map[wire.Digest][]byte{}, own: map[wire.AgentID]own{}, drawn: map[wire.RoundID][]wire.AgentID{},
		obeyed: map[wire.AgentID]wire.AnnouncementPosition{}, trainedBy: map[participation]*processLife{},
		mixedBy: map[wire.RoundID][]conservation.BlockSums{},
		models:  map[version]wire.Digest{}, restarted: map[wire.RoundID]bool{},
		updateSavedAtStart: map[wire.AgentID]participation{},
		abandoned:          map[wire.RoundID]bool{}, unsettled: map[participation]wire.Digest{},
		changes:             map[wire.AgentID][]float32{},
		newestUpdateByAgent: map[wire.AgentID]topKUpdate{}, kept: map[wire.AgentID][]float32{},
		offeredOf: map[participation]wire.Digest{},
		held:      map[int]*learner.Samples[float32]{}, scores: map[version][]scored{},
		evaluatorsByModel: map[version]uint{},
		worse:             map[wire.AgentID]version{}}
}

// file returns the current content of a file, or nil if it does not exist.
func (d *disk) file(name string) []byte {
	f, last, err := handle{disk: d}.at(name)
	if err != nil {
		return nil
	}
	if n, ok := f.names[last].(*inode); ok {
		return n.data
	}
	return nil
}

// started checks the disk of a party whose process starts, and updates the state of the checker.
func (c *invariantChecker) started(p *party) {
	if p.number == Coordinator {
		return
	}
	c.restarted[c.record.Round], c.restarted[c.record.MixingBlockRound] = true, true
	delete(c.updateSavedAtStart, p.id)
	c.predicts(p)
	at, _, _, ok := updateOf(p.disk.file, p.id)
	if ok {
		c.updateSavedAtStart[p.id] = at
	}
	c.startsWithUnsent(p, at)
	maps.DeleteFunc(c.unsettled, func(x participation, _ wire.Digest) bool {
		return x.agent == p.id && (!ok ||
			x != at)
	})
	c.obeyed[p.id] = placeOf(p.disk.file) // an agent may forget a position for which it has not sent an update
}

// observeFileWrite checks a file after the file was renamed or, for a slot file, after it was synced.
func (c *invariantChecker) observeFileWrite(p *party, name string) {
	switch base, _ := isSlot(name); base {
	case modelfile.ActiveModelPath(stateDir):
		c.predicts(p)
	case ownFile:
		c.checkPersonalState(p)
	case updateFile:
		if at, payload, behind, ok := updateOf(p.disk.file, p.id); ok {
			c.checkUnsentPart(p, at, payload, behind)
			c.offeredOf[at] = wire.BlobDigest(payload)
			c.unsettled[at] = wire.BlobDigest(payload)
			c.payloads[wire.BlobDigest(payload)] = bytes.Clone(payload)
		}
	case runFile:
		if r, ok := recordOf(p.disk.file); ok && p.number == Coordinator && c.w.plan.Machines <= 1 {
			c.journaled(p, r)
		}
	}
}

// statistics returns the number of rounds before the first training round: 1 if the run starts with a statistics round,
// and otherwise 0.
func (c *invariantChecker) statistics() wire.RoundID {
	if c.w.plan.Standardize {
		return 1
	}
	return 0
}

// checkPersonalState checks the personal state that an agent saves. Each round must start with the resulting state of
// the previous round. If a round is repeated, it must start with the same state as the first attempt.
func (c *invariantChecker) checkPersonalState(p *party) {
	now, ok := ownOf(p.disk.file)
	was, known := c.own[p.id]
	if !ok {
		return
	}
	c.own[p.id] = now
	begins := was.after
	if was.round == now.round {
		begins = was.before
	}
	if known && was.run == now.run && !p.hadTrouble && !bytes.Equal(begins, now.before) {
		c.w.fail("%s begins round %d with personal parameters that differ from the end of round %d", p.id, now.round,
			was.round)
	}
}

// journaled checks a new record of the coordinator's journal.
func (c *invariantChecker) journaled(p *party, r round.JournalRecord) {
	c.draws(r)
	seen := map[wire.AgentID]bool{}
	for _, x := range r.Participants {
		if seen[x.Agent] {
			c.w.fail("%s is listed twice as a participant of round %d", x.Agent, r.Round)
		}
		seen[x.Agent] = true
		if !slices.Contains(c.drawn[r.Round], x.Agent) {
			c.drawn[r.Round] = append(c.drawn[r.Round], x.Agent)
		}
	}
	if done := r.LastAcceptedUpdates.Round; done > 0 && c.sets[done] == nil {
		set := map[wire.AgentID]round.Participant{}
		for _, x := range c.record.Participants {
			if digest, ok := r.LastAcceptedUpdates.UpdateDigestByAgent[x.Agent]; ok && c.record.Round == done {
				x.AcceptedUpdateDigest = digest
				set[x.Agent] = x
			}
		}
		if len(set) != len(r.LastAcceptedUpdates.UpdateDigestByAgent) {
			c.w.fail("round %d has accepted %d updates, but only %d from its participants", done,
				len(r.LastAcceptedUpdates.UpdateDigestByAgent), len(set))
		}
		c.sets[done] = set
		at := version{r.Run, uint64(r.Plan.BaseModelVersion)}
		switch {
		case c.record.Plan.Kind == wire.KindStatistics && at.version > 0:
			c.refreshed(p, done, at)
		case at.version > 0:
			c.fold(p, done, at, &r.Plan)
		}
	}
	if hash, file := modelOf(p.disk.durableFile, r.Run, r.Plan.BaseModelVersion); r.Plan.BaseModel.IsSet() &&
		(file == nil || hash != r.Plan.BaseModel.Hash) {
		c.w.fail("the journal of round %d refers to model %d, which is not on the disk", r.Round,
			r.Plan.BaseModelVersion)
	}
	c.record = r
}

// observeMessage checks a message that a party publishes.
func (c *invariantChecker) observeMessage(p *party, m mqtt.Message) {
	c.messages++
	kind, about, _, name, _ := topics().ParseTopic(m.Topic)
	sealed := kind == mqtt.KindAnnouncement || kind == mqtt.KindCoordinatorToAgent ||
		kind == mqtt.KindAgentToCoordinator ||
		kind == mqtt.KindUpdate && name == transfer.ManifestPartName
	if len(m.Payload) == 0 || !sealed {
		c.addToDigest(p, wire.Envelope{})
		return
	}
	e, err := c.w.reveal(m)
	c.addToDigest(p, e)
	if err != nil {
		c.w.fail("%s sent an invalid message: %v", p.id, err)
		return
	}
	if said, err := wire.ParseEnvelope(m.Payload); err == nil &&
		said.Type.MustBeSealed() { // Messages that must be sealed are decrypted before this check.
		c.w.fail("%s sent an unencrypted %s", p.id, said.Type)
	}
	c.said[participationMessage{participation{e.Run, e.Round, about}, e.Type}] = true
	switch e.Type {
	case wire.TypeHello:
		h, err := wire.DecodeHello(e.Body)
		if err == nil {
			c.recordEvaluation(about, &h.Evaluation)
		}
		if err != nil || h.UnfitReason != 0 {
			c.unfitAgents[about] = true
		} else if h.FollowedAnnouncement != (wire.Digest{}) && !c.digests[h.FollowedAnnouncement] {
			c.w.fail("%s follows an announcement that was never published", about)
		}
	case wire.TypeAnnouncement:
		c.announce(p, e)
	case wire.TypeUpdateAccepted:
		c.accept(e, m.Topic)
	case wire.TypeUpdateRefused:
		c.refuse(e, m.Topic)
	case wire.TypeUpdate:
		if o := c.obeyed[p.id]; o.Run != e.Run || o.Round != e.Round || o.Phase != wire.PhaseOpen {
			c.w.fail("%s offers an update of round %d but follows announcement %s", p.id, e.Round, o)
		}
		c.checkOffer(p, e)
	}
}

// addToDigest adds a sent message to the digest of the run. It adds the time, the sender, the type (0 for a part of a
// model or an update), the round, and the hash of the model or update that the message names.
func (c *invariantChecker) addToDigest(p *party, e wire.Envelope) {
	var content wire.Digest
	switch e.Type {
	case wire.TypeAnnouncement:
		if a, err := wire.DecodeAnnouncement(e.Body); err == nil {
			content = a.BaseModel.Hash
		}
	case wire.TypeUpdate:
		if u, err := wire.DecodeUpdate(e.Body); err == nil {
			content = u.PayloadManifest.Hash
		}
	}
	_, _ = fmt.Fprintf(c.w.digest, "%d %d %d %d %x\n", c.w.jobTime().Sub(c.w.began), p.number, e.Type, e.Round, content)
}

// checkOffer checks that an agent offers an update only after the update has been saved, so that it would survive a
// power cut.
func (c *invariantChecker) checkOffer(p *party, e wire.Envelope) {
	if p.hadTrouble {
		return
	}
	if at, _, _, ok := updateOf(p.disk.durableFile, p.id); !ok || at != (participation{e.Run, e.Round, p.id}) {
		c.w.fail("%s offers an update of round %d that is not saved", p.id, e.Round)
	}
	if o, _ := ownOf(p.disk.durableFile); c.w.plan.personal() && e.Round > c.statistics() &&
		(o.run != e.Run || o.round != e.Round) {
		c.w.fail("%s offers an update of round %d, but its saved personal parameters are from round %d", p.id, e.Round,
			o.round)
	}
	if o := placeOf(p.disk.durableFile); o.Run != e.Run || o.Round < e.Round {
		c.w.fail("%s offers an update of round %d, but its saved position is %s", p.id, e.Round, o)
	}
}

// announce checks an announcement against the previous announcement, and against the coordinator's state that would
// survive a power cut.
func (c *invariantChecker) announce(p *party, e wire.Envelope) {
	a, err := wire.DecodeAnnouncement(e.Body)
	if err != nil {
		c.w.fail("invalid announcement: %v", err)
		return
	}
	order := wire.AnnouncementPositionOf(e.Header, &a)
	switch n := order.Compare(c.announced); {
	case n < 0 || n == 0 && e.Digest() != c.digest:
		c.w.fail("announcement %s was published after %s", order, c.announced)
	case n > 0:
		c.w.note("announcement %s", order)
	}
	c.announced, c.digest = order, e.Digest()
	c.digests[c.digest] = true
	if a.Phase == wire.PhaseOpen && int(order.Round) > len(c.began) {
		c.began = append(c.began, c.w.jobTime().Sub(c.w.began))
	}
	r, ok := recordOf(p.disk.durableFile)
	if !ok || r.Run != order.Run || r.Round < order.Round || r.Round == order.Round && r.Attempt < order.Attempt {
		c.w.fail("announcement %s was published, but the journal on the disk is at run %d round %d attempt %d", order,
			r.Run,
			r.Round, r.Attempt)
	}
	if a.LastEndedRound > 0 && (r.LastOutcome == nil || r.LastOutcome.Round < a.LastEndedRound) {
		c.w.fail("the end of round %d was announced, but the journal on the disk does not contain it", a.LastEndedRound)
	}
	if key, err := sealsOf(p.disk.durableFile); err != nil || key != a.SealPublicKey {
		c.w.fail("the encryption key %x was announced, but the disk has %x: %v", a.SealPublicKey[:4], key[:4], err)
	}
	if a.Kind == wire.KindTraining {
		c.announcedModel(p, r.Run, &a)
	}
}

// announcedModel checks that an announced model would survive a power cut and has the same hash as in earlier
// announcements.
func (c *invariantChecker) announcedModel(p *party, run wire.RunID, a *wire.Announcement) {
	if hash, file := modelOf(p.disk.durableFile, run, a.BaseModelVersion); file == nil || hash != a.BaseModel.Hash {
		c.w.fail("model %d was announced but is not on the disk", a.BaseModelVersion)
	}
	at := version{run, uint64(a.BaseModelVersion)}
	if before, ok := c.models[at]; ok && before != a.BaseModel.Hash {
		c.w.fail("model %d is announced with hash %s, but was announced with hash %s before", a.BaseModelVersion,
			a.BaseModel.Hash.TopicLevel(),
			before.TopicLevel())
	}
	c.models[at] = a.BaseModel.Hash
	c.scoreModel(p, at, a)
}

// accept checks the message by which the coordinator accepts an update. A round must accept at most one update per
// agent. After the round is closed, only updates that it contains may be accepted.
func (c *invariantChecker) accept(e wire.Envelope, topic string) {
	m, err := wire.DecodeUpdateAccepted(e.Body)
	_, to, _, _, _ := topics().ParseTopic(topic)
	if err != nil {
		c.w.fail("invalid acceptance: %v", err)
		return
	}
	at := participation{e.Run, e.Round, to}
	if before, ok := c.accepted[at]; ok && before != m.Update && !c.w.agent(to).hadTrouble {
		c.w.fail("two updates of %s were accepted in round %d", to, e.Round)
	}
	c.accepted[at] = m.Update
	if set, closed := c.sets[e.Round]; closed && set[to].AcceptedUpdateDigest != m.Update {
		c.w.fail("an update of %s was accepted for round %d, but the closed round does not contain it", to, e.Round)
	}
}

// refuse checks that the coordinator does not refuse an update that it has already accepted in the current round.
func (c *invariantChecker) refuse(e wire.Envelope, topic string) {
	m, err := wire.DecodeUpdateRefused(e.Body)
	_, to, _, _, _ := topics().ParseTopic(topic)
	r := &c.record
	lasts := r.Round == e.Round && r.Phase != round.CoordinatorIdle && r.Phase != round.CoordinatorPaused &&
		r.Phase != round.CoordinatorFinished
	if taken, ok := c.accepted[participation{e.Run, e.Round, to}]; err != nil || lasts && ok && taken == m.Update {
		c.w.fail("the accepted update of %s for round %d was refused: %v", to, e.Round, err)
	}
}

// mixed records the parameter sums of a training block that an agent has ended. When all agents have ended the block
// without a restart, it checks that mixing has not changed the sum of all parameters.
func (c *invariantChecker) mixed(l *processLife, r wire.RoundID, b conservation.BlockSums) {
	if len(b.Edges) == 0 || l.dead || c.restarted[r] {
		return
	}
	all := append(c.mixedBy[r], b)
	c.mixedBy[r] = all
	if len(all) < c.w.plan.Agents {
		return
	}
	if drift, err := conservation.Drift(all); err == nil && drift > 1e-5 {
		c.w.fail("mixing in block %d has changed the sum of the parameters by %g relative to its norm", r, drift)
	} else if err == nil {
		c.balanced++
	}
}
