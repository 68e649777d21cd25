package round

import "github.com/fedmesh/fedmesh/wire"

// participantProgress is how far a participant of the current round has come.
type participantProgress struct {
	*Participant
	state         participantState
	offeredDigest wire.Digest
	edgeIndices   []int32 // its own, as places in the record's list
	// localStepsDiverged is true after the agent declined because its local steps left the finite numbers.
	localStepsDiverged bool
}

type participantState uint8

const (
	peerInvited  participantState = iota // and silent
	peerJoined                           // at work, or sending
	peerAccepted                         // its update is held
	peerOut                              // declined, refused for good, or revoked
	peerStates                           // how many there are
)

// trackParticipants begins a round with the participants of the record.
func (c *Coordinator) trackParticipants() {
	c.progressByAgent = make(map[wire.AgentID]*participantProgress, len(c.rec.Participants))
	c.drawsByState = [peerStates]int{}
	for i := range c.rec.Participants {
		p := &participantProgress{Participant: &c.rec.Participants[i]}
		if !p.Accepted.IsZero() {
			p.state = peerAccepted
		}
		c.drawsByState[p.state] += p.Times
		c.progressByAgent[p.Agent] = p
	}
	for k, e := range c.rec.Edges {
		for _, end := range []wire.AgentID{e.A, e.B} {
			if p := c.progressByAgent[end]; p != nil {
				p.edgeIndices = append(p.edgeIndices, int32(k))
			}
		}
	}
}

// changeState changes the state of a peer.
func (c *Coordinator) changeState(p *participantProgress, to participantState) {
	c.countTransferredBytes(p.state, to)
	c.drawsByState[p.state] -= p.Times
	c.drawsByState[to] += p.Times
	p.state = to
}

// addDraws gives a peer draws of others, or takes its own away.
func (c *Coordinator) addDraws(p *participantProgress, n int) {
	p.Times += n
	c.drawsByState[p.state] += n
}

// countDraws returns the draws of the round: accepted, and still possible. They are counted as peers change, since each
// update that is stored asks for them.
func (c *Coordinator) countDraws() (accepted, possible, all int) {
	accepted, possible = c.drawsByState[peerAccepted], c.drawsByState[peerInvited]+c.drawsByState[peerJoined]
	return accepted, possible, accepted + possible + c.drawsByState[peerOut]
}
