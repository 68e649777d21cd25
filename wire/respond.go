package wire

import "time"

// Respond is how a coordinator of many agents has some of them answer, and the others leave the broker for a while. Its
// zero value asks all, and lets none leave.
type Respond struct {
	Of     uint32 // an agent answers with probability Of/2³²; 0 = all do
	After  uint32 // who has no part in the round may leave, and come back after this many milliseconds …
	Within uint32 // … and a random part of these; both 0 = nobody leaves
	Round  bool   // only those with a part in a round tell their presence
}

// Longest is how long an agent that leaves stays away, at most; 0 = nobody leaves.
func (p *Respond) Longest() time.Duration {
	return (time.Duration(p.After) + time.Duration(p.Within)) * time.Millisecond
}

// part is the section of an announcement.
func (p *Respond) part() part {
	return part{"respond", NeedIgnore, func(w *writer) {
		if *p != (Respond{}) {
			w.u32(p.Of)
			w.u32(p.After)
			w.u32(p.Within)
			w.bool(p.Round)
		}
	}, func(r *reader) { *p = Respond{r.u32(), r.u32(), r.u32(), r.bool("presence")} }}
}
