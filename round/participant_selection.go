package round

import (
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// The first credit: an agent may send so many chunks right behind its manifest, and all agents of a round together so
// many, and so many bytes, which wait at the broker for the coordinator.
const (
	mostAhead         = 4
	mostAllAhead      = 256
	mostAllAheadBytes = 4 << 20
)

// firstUploadCredit returns the first credit of each agent where this many send updates.
func firstUploadCredit(agents int, update uint32) uint32 {
	if update <= wire.MaxInlineUpdate || agents == 0 {
		return 0 // it rides in its manifest
	}
	n := min(mostAhead, mostAllAhead/agents)
	for n > 0 && agents*(n*wire.ChunkHeaderSize+min(n*wire.MaxChunk, int(update))) > mostAllAheadBytes {
		n--
	}
	return uint32(n)
}

// announcedSelection returns what the announcement of an open round says to those that are drawn: who they are, unless
// they are to be invited, and the first credit of each. An invitation carries edges; and there are too many tags for
// one message at some number.
func (c *Coordinator) announcedSelection() (drawn []SelectedAgent, credit uint32) {
	if !c.isInPhase(CoordinatorCollecting) {
		return nil, 0
	}
	uploads, alike := 0, true // those that send
	for _, p := range c.rec.Participants {
		if !p.Accepted.IsZero() {
			continue
		}
		if p.Times > 0 {
			uploads++
		}
		drawn = append(drawn, SelectedAgent{p.Agent, c.rec.Plan.StepWeight(c.cfg.WeightPlacement, p.Weight)})
		alike = alike && drawn[len(drawn)-1].StepWeight == drawn[0].StepWeight
	}
	if c.roundHasMixing() || wire.SelectionSize(len(drawn), alike) > wire.MaxSelection {
		drawn = nil
	}
	return drawn, firstUploadCredit(uploads, c.rec.Plan.Bytes)
}

// handleAnnouncementSent goes on when an announcement is out. The round's time begins then. Those that are drawn know
// so by the announcement; what it is the second time does not tell how much time is left.
func (c *Coordinator) handleAnnouncementSent(now time.Time, e AnnouncementSent) {
	if !c.linkUp || e.Round != c.rec.Round || e.Attempt != c.rec.Attempt || e.Phase != c.announcement.phase {
		return // of an announcement that another one has replaced
	}
	first := c.announcement.publishedAt.IsZero()
	if c.announcement.published = true; first {
		c.announcement.publishedAt = now
	}
	if first && c.isInPhase(CoordinatorGathering) {
		c.helloWindow = helloWindow{number: c.helloWindow.number + 1, openedAt: now}
	}
	if first && c.isInPhase(CoordinatorGathering) && c.mixing.pendingParticipants == nil {
		c.phaseDeadline = now.Add(c.cfg.Gather.WindowLength)
	}
	if !c.isInPhase(CoordinatorCollecting) {
		return
	}
	if first && !c.phaseDeadline.IsZero() {
		c.phaseDeadline = now.Add(c.cfg.Deadline)
	}
	if first && c.announcement.namesDrawn {
		c.reinviteAt = now.Add(c.cfg.InviteEvery)
	} else {
		c.inviteSilent(now)
	}
}
