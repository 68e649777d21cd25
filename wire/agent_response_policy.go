package wire

import "time"

// AgentResponsePolicy limits the load of a large federation by asking only some agents to answer and letting the others
// disconnect for a while. With the zero value all agents answer and stay connected.
type AgentResponsePolicy struct {
	// probability with which an agent answers, in units of 2⁻³²; 0 means that all agents answer
	AnswerProbability uint32
	// DisconnectMillis is the minimum time, in milliseconds, for which an agent that does not participate in the round
	// disconnects.
	DisconnectMillis uint32
	// AbsenceSpreadMillis is the maximum random time in milliseconds that an agent adds to DisconnectMillis. If both
	// fields are 0, agents stay connected.
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
