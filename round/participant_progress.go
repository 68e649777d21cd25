package round

import "github.com/fedmesh/fedmesh/wire"

// roundProgress is the progress of the participants of the current round.
type roundProgress struct {
	progressByAgent map[wire.AgentID]*participantProgress
	drawsByState    [participantStateCount]int // number of draws by the state of their participants
}

// participantProgress is the progress of one participant.
type participantProgress struct {
	*Participant
	state               participantState
	offeredUpdateDigest wire.Digest
	edgeIndices         []int32 // its edges, as indices in JournalRecord.Edges
	// localStepsDiverged: the agent declined because its local steps reached infinite numbers or NaN.
	localStepsDiverged bool
}

type participantState uint8

const (
	stateInvited          participantState = iota // invited, without an answer
	stateJoined                                   // training or sending
	stateAccepted                                 // its update is stored
	stateDroppedOut                               // declined, finally refused, or revoked
	participantStateCount                         // number of states
)

// trackParticipants begins the progress of a round with the participants of the record.
func (c *Coordinator) trackParticipants() {
	c.progress.progressByAgent = make(map[wire.AgentID]*participantProgress, len(c.record.Participants))
	c.progress.drawsByState = [participantStateCount]int{}
	for i := range c.record.Participants {
		p := &participantProgress{Participant: &c.record.Participants[i]}
		if !p.AcceptedUpdateDigest.IsZero() {
			p.state = stateAccepted
		}
		c.progress.drawsByState[p.state] += p.DrawCount
		c.progress.progressByAgent[p.Agent] = p
	}
	for k, e := range c.record.Edges {
		for _, end := range []wire.AgentID{e.A, e.B} {
			if p := c.progress.progressByAgent[end]; p != nil {
				p.edgeIndices = append(p.edgeIndices, int32(k))
			}
		}
	}
}

// changeParticipantState changes the state of a participant.
func (c *Coordinator) changeParticipantState(p *participantProgress, to participantState) {
	c.countTransferredBytes(p.state, to)
	c.progress.drawsByState[p.state] -= p.DrawCount
	c.progress.drawsByState[to] += p.DrawCount
	p.state = to
}

// addDraws adds n draws to a participant; n may be negative.
func (c *Coordinator) addDraws(p *participantProgress, n int) {
	p.DrawCount += n
	c.progress.drawsByState[p.state] += n
}

// countDraws returns the numbers of draws of the round: accepted, still possible, and all. It is called for each stored
// update, so the numbers are kept up to date as states change.
func (c *Coordinator) countDraws() (accepted, possible, all int) {
	accepted, possible = c.progress.drawsByState[stateAccepted],
		c.progress.drawsByState[stateInvited]+c.progress.drawsByState[stateJoined]
	return accepted, possible, accepted + possible + c.progress.drawsByState[stateDroppedOut]
}
