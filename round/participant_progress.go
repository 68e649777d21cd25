package round

import "github.com/fedmesh/fedmesh/wire"

// roundProgress is the progress of the participants of the current round.
type roundProgress struct {
	progressByAgent  map[wire.AgentID]*participantProgress
	drawCountByState [participantStateCount]int // number of draws by the state of their participants
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
func (c *CoordinatorMachine) trackParticipants() {
	c.progress.progressByAgent = make(map[wire.AgentID]*participantProgress, len(c.record.Participants))
	c.progress.drawCountByState = [participantStateCount]int{}
	for i := range c.record.Participants {
		p := &participantProgress{Participant: &c.record.Participants[i]}
		if !p.AcceptedUpdateDigest.IsZero() {
			p.state = stateAccepted
		}
		c.progress.drawCountByState[p.state] += p.DrawCount
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
func (c *CoordinatorMachine) changeParticipantState(p *participantProgress, to participantState) {
	c.countTransferredBytes(p.state, to)
	c.progress.drawCountByState[p.state] -= p.DrawCount
	c.progress.drawCountByState[to] += p.DrawCount
	p.state = to
}

// addParticipantDraws adds n draws to a participant; n may be negative.
func (c *CoordinatorMachine) addParticipantDraws(p *participantProgress, n int) {
	p.DrawCount += n
	c.progress.drawCountByState[p.state] += n
}

// countAcceptedAndPossibleDraws returns the numbers of draws of the round: accepted, still possible, and all. It is
// called for each stored update, so the numbers are kept up to date as states change.
func (c *CoordinatorMachine) countAcceptedAndPossibleDraws() (accepted, possible, all int) {
	accepted, possible = c.progress.drawCountByState[stateAccepted],
		c.progress.drawCountByState[stateInvited]+c.progress.drawCountByState[stateJoined]
	return accepted, possible, accepted + possible + c.progress.drawCountByState[stateDroppedOut]
}
