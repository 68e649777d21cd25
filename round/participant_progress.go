package round

import "github.com/fedmesh/fedmesh/wire"

// roundProgress tracks the state of each participant in the current round.
type roundProgress struct {
	progressByAgent  map[wire.AgentID]*participantProgress
	drawCountByState [participantStateCount]int // number of draws in each participant state
}

// participantProgress is the state of one participant in the current round.
type participantProgress struct {
	*Participant
	state               participantState
	offeredUpdateDigest wire.Digest
	edgeIndices         []int32 // indices of the participant's edges in JournalRecord.Edges
	// localStepsDiverged is true if the agent declined because its local training produced infinite numbers or NaN.
	localStepsDiverged bool
}

type participantState uint8

const (
	stateInvited  participantState = iota // the agent is invited and has not answered
	stateJoined                           // the agent is training or sending its update
	stateAccepted                         // the update of the agent is stored
	// The agent declined or was revoked, or its update was refused.
	stateDroppedOut
	participantStateCount
)

// trackParticipants initialises the progress of all participants in the record's round.
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

// changeParticipantState sets the state of a participant and updates the number of draws in each state.
func (c *CoordinatorMachine) changeParticipantState(p *participantProgress, to participantState) {
	c.countTransferredBytes(p.state, to)
	c.progress.drawCountByState[p.state] -= p.DrawCount
	c.progress.drawCountByState[to] += p.DrawCount
	p.state = to
}

// addParticipantDraws adds n draws to a participant. A negative n removes draws.
func (c *CoordinatorMachine) addParticipantDraws(p *participantProgress, n int) {
	p.DrawCount += n
	c.progress.drawCountByState[p.state] += n
}

// countAcceptedAndPossibleDraws returns the number of draws whose update was accepted, the number of draws whose update
// may still arrive, and the number of all draws. It uses running counts, because it is called for each stored update.
func (c *CoordinatorMachine) countAcceptedAndPossibleDraws() (accepted, possible, all int) {
	accepted, possible = c.progress.drawCountByState[stateAccepted],
		c.progress.drawCountByState[stateInvited]+c.progress.drawCountByState[stateJoined]
	return accepted, possible, accepted + possible + c.progress.drawCountByState[stateDroppedOut]
}
