package wire

import "time"

// AgentResponsePolicy is how a coordinator of many agents has some of them answer, and the others leave the broker for
// a while. Its zero value asks all, and lets none leave.
type AgentResponsePolicy struct {
	AnswerProbability uint32 // an agent answers with probability AnswerProbability/2³²; 0 = all do
	// who has no part in the round may leave, and come back after this many milliseconds …
	DisconnectMillis    uint32
	AbsenceSpreadMillis uint32 // … and a random part of these; both 0 = nobody leaves
	PresenceInRoundOnly bool   // only those with a part in a round tell their presence
}

// MaxDisconnectTime is how long an agent that leaves stays away, at most; 0 = nobody leaves.
func (p *AgentResponsePolicy) MaxDisconnectTime() time.Duration {
	return (time.Duration(p.DisconnectMillis) + time.Duration(p.AbsenceSpreadMillis)) * time.Millisecond
}

// responsePolicyCodec is the section of an announcement.
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
