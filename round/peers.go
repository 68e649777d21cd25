package round

import "github.com/fedmesh/fedmesh/wire"

// peer is how far a participant of the current round has come.
type peer struct {
	*Participant
	state   peerState
	offered wire.Digest
	edges   []int32 // its own, as places in the record's list
	// diverged is true after the agent declined because its local steps left the finite numbers.
	diverged bool
}

type peerState uint8

const (
	peerInvited  peerState = iota // and silent
	peerJoined                    // at work, or sending
	peerAccepted                  // its update is held
	peerOut                       // declined, refused for good, or revoked
	peerStates                    // how many there are
)

// makePeers begins a round with the participants of the record.
func (c *Coordinator) makePeers() {
	c.peers = make(map[wire.AgentID]*peer, len(c.rec.Participants))
	c.tallied = [peerStates]int{}
	for i := range c.rec.Participants {
		p := &peer{Participant: &c.rec.Participants[i]}
		if !p.Accepted.IsZero() {
			p.state = peerAccepted
		}
		c.tallied[p.state] += p.Times
		c.peers[p.Agent] = p
	}
	for k, e := range c.rec.Edges {
		for _, end := range []wire.AgentID{e.A, e.B} {
			if p := c.peers[end]; p != nil {
				p.edges = append(p.edges, int32(k))
			}
		}
	}
}

// move changes the state of a peer.
func (c *Coordinator) move(p *peer, to peerState) {
	c.carried(p.state, to)
	c.tallied[p.state] -= p.Times
	c.tallied[to] += p.Times
	p.state = to
}

// giveDraws gives a peer draws of others, or takes its own away.
func (c *Coordinator) giveDraws(p *peer, n int) {
	p.Times += n
	c.tallied[p.state] += n
}

// tally returns the draws of the round: accepted, and still possible. They are counted as peers change, since each
// update that is stored asks for them.
func (c *Coordinator) tally() (accepted, possible, all int) {
	accepted, possible = c.tallied[peerAccepted], c.tallied[peerInvited]+c.tallied[peerJoined]
	return accepted, possible, accepted + possible + c.tallied[peerOut]
}
