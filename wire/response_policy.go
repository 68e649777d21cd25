package wire

import "time"

// ResponsePolicy is how a coordinator of many agents has some of them answer, and the others leave the broker for a
// while. Its zero value asks all, and lets none leave.
type ResponsePolicy struct {
	AnswerThreshold     uint32 // an agent answers with probability Of/2³²; 0 = all do
	AwayMillis          uint32 // who has no part in the round may leave, and come back after this many milliseconds …
	AwaySpreadMillis    uint32 // … and a random part of these; both 0 = nobody leaves
	PresenceInRoundOnly bool   // only those with a part in a round tell their presence
}

// MaxAwayTime is how long an agent that leaves stays away, at most; 0 = nobody leaves.
func (p *ResponsePolicy) MaxAwayTime() time.Duration {
	return (time.Duration(p.AwayMillis) + time.Duration(p.AwaySpreadMillis)) * time.Millisecond
}

// responsePolicyCodec is the section of an announcement.
func (p *ResponsePolicy) responsePolicyCodec() sectionCodec {
	return sectionCodec{"respond", NeedIgnore, func(w *writer) {
		if *p != (ResponsePolicy{}) {
			w.u32(p.AnswerThreshold)
			w.u32(p.AwayMillis)
			w.u32(p.AwaySpreadMillis)
			w.bool(p.PresenceInRoundOnly)
		}
	}, func(r *reader) { *p = ResponsePolicy{r.u32(), r.u32(), r.u32(), r.bool("presence")} }}
}
