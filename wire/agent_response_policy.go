package wire

import "time"

// AgentResponsePolicy limits the load of a large federation. It selects the agents that answer an announcement, and
// lets the others disconnect from the broker for a while. The zero value asks all agents and lets none disconnect.
type AgentResponsePolicy struct {
	AnswerProbability uint32 // probability of an answer in units of 2⁻³²; 0 = all agents answer
	// DisconnectMillis is the minimum time in milliseconds for which agents that do not take part in the round
	// disconnect.
	DisconnectMillis uint32
	// AbsenceSpreadMillis is the maximum of a random time added to DisconnectMillis; if both are 0, agents stay
	// connected.
	AbsenceSpreadMillis uint32
	PresenceInRoundOnly bool // whether only the participants of a round publish their presence
}

// MaxDisconnectTime returns the maximum time for which an agent disconnects; 0 means that agents stay connected.
func (p *AgentResponsePolicy) MaxDisconnectTime() time.Duration {
	return (time.Duration(p.DisconnectMillis) + time.Duration(p.AbsenceSpreadMillis)) * time.Millisecond
}

func (p *AgentResponsePolicy) responsePolicyCodec() sectionCodec {
	return sectionCodec{"respond", IgnoreUnknownSection, func(w *writer) {
		if *p != (AgentResponsePolicy{}) {
			w.u32(p.AnswerProbability)
			w.u32(p.DisconnectMillis)
			w.u32(p.AbsenceSpreadMillis)
			w.bool(p.PresenceInRoundOnly)
		}
	}, func(r *reader) { *p = AgentResponsePolicy{r.u32(), r.u32(), r.u32(), r.bool("presence")} }}
}
