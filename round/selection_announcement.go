package round

import (
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// The first credit: an agent may send so many chunks right behind its manifest, and all agents of a round together so
// many, and so many bytes, which wait at the broker for the coordinator.
const (
	maxInitialCreditChunks      = 4
	maxTotalInitialCreditChunks = 256
	maxTotalInitialCreditBytes  = 4 << 20
)

// initialUploadCreditChunks returns the first credit of each agent where this many send updates.
func initialUploadCreditChunks(agents int, update uint32) uint32 {
	if update <= wire.MaxInlineUpdate || agents == 0 {
		return 0 // it rides in its manifest
	}
	n := min(maxInitialCreditChunks, maxTotalInitialCreditChunks/agents)
	for n > 0 && agents*(n*wire.ChunkHeaderSize+min(n*wire.MaxChunkBytes, int(update))) > maxTotalInitialCreditBytes {
		n--
	}
	return uint32(n)
}

// announcedSelection returns what the announcement of an open round says to those that are drawn: who they are, unless
// they are to be invited, and the first credit of each. An invitation carries edges; and there are too many tags for
// one message at some number.
func (c *CoordinatorMachine) announcedSelection() (drawn []SelectedAgent, credit uint32) {
	if !c.isInPhase(CoordinatorCollecting) {
		return nil, 0
	}
	uploads, alike := 0, true // those that send
	for _, p := range c.record.Participants {
		if !p.AcceptedUpdateDigest.IsZero() {
			continue
		}
		if p.DrawCount > 0 {
			uploads++
		}
		drawn = append(drawn, SelectedAgent{p.Agent, c.record.Plan.StepWeight(c.cfg.WeightPlacement, p.Weight)})
		alike = alike && drawn[len(drawn)-1].StepWeight == drawn[0].StepWeight
	}
	if c.roundHasMixing() || wire.EncodedSelectionSize(len(drawn), alike) > wire.MaxSelectionBytes {
		drawn = nil
	}
	return drawn, initialUploadCreditChunks(uploads, c.record.Plan.UpdateBytes)
}

// handleAnnouncementSent goes on when an announcement is out. The round's time begins then. Those that are drawn know
// so by the announcement; what it is the second time does not tell how much time is left.
func (c *CoordinatorMachine) handleAnnouncementSent(now time.Time, e AnnouncementSent) {
	if !c.linkUp || e.Round != c.record.Round || e.Attempt != c.record.Attempt || e.Phase != c.announcement.phase {
		return // of an announcement that another one has replaced
	}
	first := c.announcement.publishedAt.IsZero()
	if c.announcement.isPublished = true; first {
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
		c.phaseDeadline = now.Add(c.cfg.RoundTimeout)
	}
	if first && c.announcement.namesDrawnAgents {
		c.reinviteAt = now.Add(c.cfg.ReinviteInterval)
	} else {
		c.inviteSilentParticipants(now)
	}
}
