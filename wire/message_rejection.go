package wire

// MessageRejectionReason is the reason why the coordinator ignores an agent's messages. Metrics use its name as a label
// value.
type MessageRejectionReason uint8

// Reasons for rejecting a message.
const (
	RejectedUnlistedAgent MessageRejectionReason = iota + 1 // the agent is not in the list of agents
	// RejectedOtherKey means that the messages are signed with a different key from the one in the list of agents.
	RejectedOtherKey
	// RejectedOldEpoch means that the coordinator has already accepted a message with a higher boot epoch.
	RejectedOldEpoch
	RejectedClone // another device uses the same id and key
	lastRejection = RejectedClone
)

// String returns the name of the reason in metrics and logs.
func (r MessageRejectionReason) String() string {
	return enumName(uint8(r), "unlisted", "other_key", "counter_behind", "clone")
}

// MessageRejectionReasons returns all values of MessageRejectionReason.
func MessageRejectionReasons() []MessageRejectionReason { return allEnumValues(lastRejection) }

// MessageRejection is the coordinator's answer to a hello message, presence message or metrics report that it ignores.
// The answer is informational: the agent shows the reason but does not change its behaviour.
type MessageRejection struct {
	MessageDigest Digest // digest of the rejected envelope
	Reason        MessageRejectionReason
}

// Body returns the encoded message.
func (m *MessageRejection) Body() []byte {
	var w writer
	w.digest(m.MessageDigest)
	w.u8(uint8(m.Reason))
	return w.encoded
}

// DecodeMessageRejection decodes the body of a TypeMessageRejection envelope.
func DecodeMessageRejection(body []byte) (MessageRejection, error) {
	r := reader{unread: body}
	m := MessageRejection{MessageDigest: r.digest(), Reason: MessageRejectionReason(r.enum("reason",
		uint8(lastRejection)))}
	return m, r.finish("rejection")
}
