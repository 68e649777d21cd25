package wire

// MessageRejectionReason is why the coordinator ignores an agent's messages. It is the label of a metric.
type MessageRejectionReason uint8

// The reasons.
const (
	RejectedUnlistedAgent MessageRejectionReason = iota + 1 // the agent is not in the list of agents
	// Its messages are signed with another key than the one in the list.
	RejectedOtherKey
	// Its epoch is lower than that of a message that was accepted before.
	RejectedOldEpoch
	RejectedClone // another device uses its name and its key
	lastRejection = RejectedClone
)

// String returns the reason's name, as metrics and logs show it.
func (r MessageRejectionReason) String() string {
	return enumName(uint8(r), "unlisted", "other_key", "counter_behind", "clone")
}

// MessageRejectionReasons returns all reasons, for closed label sets.
func MessageRejectionReasons() []MessageRejectionReason { return allEnumValues(lastRejection) }

// MessageRejection is the answer to a hello, a presence or a report that the coordinator ignores. It is for people: the
// agent shows the reason, and behaves as before.
type MessageRejection struct {
	MessageDigest Digest // digest of the envelope that is rejected
	Reason        MessageRejectionReason
}

// Body returns the message's encoding.
func (m *MessageRejection) Body() []byte {
	var w writer
	w.digest(m.MessageDigest)
	w.u8(uint8(m.Reason))
	return w.encoded
}

// DecodeMessageRejection reads the body of a TypeMessageRejection envelope.
func DecodeMessageRejection(body []byte) (MessageRejection, error) {
	r := reader{unread: body}
	m := MessageRejection{MessageDigest: r.digest(), Reason: MessageRejectionReason(r.enum("reason",
		uint8(lastRejection)))}
	return m, r.finish("rejection")
}
