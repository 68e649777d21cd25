package wire

// UnheardReason tells why the coordinator does not use an agent's messages. It is a metric's label.
type UnheardReason uint8

// The reasons.
const (
	UnheardUnlisted UnheardReason = iota + 1 // it is not in the list of agents: never, or no more
	UnheardKey                               // its messages are signed with another key than the one in the list
	UnheardBehind                            // its epoch is lower than that of messages which were heard before
	UnheardClone                             // another device speaks under its name, with its key
	lastUnheard     = UnheardClone
)

// String returns the reason's name, as metrics and logs show it.
func (r UnheardReason) String() string {
	return enumName(uint8(r), "unlisted", "other_key", "counter_behind", "clone")
}

// UnheardReasons returns all reasons, for closed label sets.
func UnheardReasons() []UnheardReason { return enumAll(lastUnheard) }

// Unheard answers a hello, a presence or a report that the coordinator does not use. It is for people: an agent shows
// it and does nothing else by it.
type Unheard struct {
	Answers Digest // of the envelope that it answers
	Reason  UnheardReason
}

// Body returns the message's encoding.
func (m *Unheard) Body() []byte {
	var w writer
	w.digest(m.Answers)
	w.u8(uint8(m.Reason))
	return w.b
}

// DecodeUnheard reads the body of a TypeUnheard envelope.
func DecodeUnheard(body []byte) (Unheard, error) {
	r := reader{b: body}
	m := Unheard{Answers: r.digest(), Reason: UnheardReason(r.enum("reason", uint8(lastUnheard)))}
	return m, r.done("unheard")
}
