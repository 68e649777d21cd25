package wire

// RejectionReason is why the coordinator ignores an agent's messages. It is the label of a metric.
type RejectionReason uint8

// The reasons.
const (
	RejectedUnlisted RejectionReason = iota + 1 // the agent is not in the list of agents
	RejectedKey                                 // its messages are signed with another key than the one in the list
	RejectedBehind                              // its epoch is lower than that of a message that was accepted before
	RejectedClone                               // another device uses its name and its key
	lastRejection    = RejectedClone
)

// String returns the reason's name, as metrics and logs show it.
func (r RejectionReason) String() string {
	return enumName(uint8(r), "unlisted", "other_key", "counter_behind", "clone")
}

// RejectionReasons returns all reasons, for closed label sets.
func RejectionReasons() []RejectionReason { return allEnumValues(lastRejection) }

// Rejection is the answer to a hello, a presence or a report that the coordinator ignores. It is for people: the agent
// shows the reason, and behaves as before.
type Rejection struct {
	MessageDigest Digest // digest of the envelope that is rejected
	Reason        RejectionReason
}

// Body returns the message's encoding.
func (m *Rejection) Body() []byte {
	var w writer
	w.digest(m.MessageDigest)
	w.u8(uint8(m.Reason))
	return w.b
}

// DecodeRejection reads the body of a TypeRejection envelope.
func DecodeRejection(body []byte) (Rejection, error) {
	r := reader{b: body}
	m := Rejection{MessageDigest: r.digest(), Reason: RejectionReason(r.enum("reason", uint8(lastRejection)))}
	return m, r.finish("rejection")
}
