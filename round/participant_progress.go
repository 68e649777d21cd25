package round

import "github.com/fedmesh/fedmesh/wire"

// roundProgress is the progress of the participants of the current round.
type roundProgress struct {
	byAgent      map[wire.AgentID]*participantProgress
	drawsByState [peerStates]int // number of draws by the state of their participants
}

// participantProgress is the progress of one participant.
type participantProgress struct {
	*Participant
	state         participantState
	offeredDigest wire.Digest
	edgeIndices   []int32 // its edges, as indices in Record.Edges
	// localStepsDiverged: the agent declined because its local steps reached infinite numbers or NaN.
	localStepsDiverged bool
}

type participantState uint8

const (
	peerInvited  participantState = iota // invited, without an answer
	peerJoined                           // training or sending
	peerAccepted                         // its update is stored
	peerOut                              // declined, finally refused, or revoked
	peerStates                           // number of states
)

// trackParticipants begins the progress of a round with the participants of the record.
func (c *Coordinator) trackParticipants() {
	c.progress.byAgent = make(map[wire.AgentID]*participantProgress, len(c.rec.Participants))
	c.progress.drawsByState = [peerStates]int{}
	for i := range c.rec.Participants {
		p := &participantProgress{Participant: &c.rec.Participants[i]}
		if !p.Accepted.IsZero() {
			p.state = peerAccepted
		}
		c.progress.drawsByState[p.state] += p.Times
		c.progress.byAgent[p.Agent] = p
	}
	for k, e := range c.rec.Edges {
		for _, end := range []wire.AgentID{e.A, e.B} {
			if p := c.progress.byAgent[end]; p != nil {
				p.edgeIndices = append(p.edgeIndices, int32(k))
			}
		}
	}
}

// changeState changes the state of a participant.
func (c *Coordinator) changeState(p *participantProgress, to participantState) {
	c.countTransferredBytes(p.state, to)
	c.progress.drawsByState[p.state] -= p.Times
	c.progress.drawsByState[to] += p.Times
	p.state = to
}

// addDraws adds n draws to a participant; n may be negative.
func (c *Coordinator) addDraws(p *participantProgress, n int) {
	p.Times += n
	c.progress.drawsByState[p.state] += n
}

// countDraws returns the numbers of draws of the round: accepted, still possible, and all. It is called for each stored
// update, so the numbers are kept up to date as states change.
func (c *Coordinator) countDraws() (accepted, possible, all int) {
	accepted, possible = c.progress.drawsByState[peerAccepted],
		c.progress.drawsByState[peerInvited]+c.progress.drawsByState[peerJoined]
	return accepted, possible, accepted + possible + c.progress.drawsByState[peerOut]
}
