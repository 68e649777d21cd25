package round

import (
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// Limits of the initial upload credit, which is the number of chunks of an update that an agent may send before the
// coordinator requests them. The limits apply per agent, and to the total number of chunks and bytes per round. The
// broker stores these chunks until the coordinator receives them.
const (
	maxInitialCreditChunks      = 4
	maxTotalInitialCreditChunks = 256
	maxTotalInitialCreditBytes  = 4 << 20
)

// initialUploadCreditChunks returns the number of chunks that each agent may send before the coordinator requests them.
// It depends on the number of agents and the size of an update.
func initialUploadCreditChunks(agents int, update uint32) uint32 {
	if update <= wire.MaxInlineUpdate || agents == 0 {
		return 0 // The manifest contains the whole update, so no credit is needed.
	}
	n := min(maxInitialCreditChunks, maxTotalInitialCreditChunks/agents)
	for n > 0 && agents*(n*wire.ChunkHeaderSize+min(n*wire.MaxChunkBytes, int(update))) > maxTotalInitialCreditBytes {
		n--
	}
	return uint32(n)
}

// announcedSelection returns the drawn agents and the upload credit of each agent, for the announcement of an open
// round. It returns no agents if the coordinator invites them individually: in rounds with mixing, and if the list is
// too long for one message.
func (c *CoordinatorMachine) announcedSelection() (drawn []SelectedAgent, credit uint32) {
	if !c.isInPhase(CoordinatorCollecting) {
		return nil, 0
	}
	uploads, alike := 0, true // number of agents that send updates, and whether all agents have the same step weight
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

// handleAnnouncementSent continues the round after its announcement is published. The round's time begins at the first
// publication. After a later publication, the coordinator invites silent participants, since the repeated announcement
// does not contain the remaining time.
func (c *CoordinatorMachine) handleAnnouncementSent(now time.Time, e AnnouncementSent) {
	if !c.linkUp || e.Round != c.record.Round || e.Attempt != c.record.Attempt || e.Phase != c.announcement.phase {
		return // Ignore the event, since another announcement has replaced the published one.
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
