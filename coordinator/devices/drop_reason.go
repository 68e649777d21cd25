package devices

// DropReason is the reason for dropping a received message. It is used as a metric label.
type DropReason string

// Reasons for dropping a message.
const (
	DropMalformed DropReason = "malformed"
	DropVersion   DropReason = "version"
	DropSignature DropReason = "bad_signature"
	DropForeign   DropReason = "foreign" // message of another federation, or on another agent's topic
	DropUnknown   DropReason = "unknown_agent"
	DropReplayed  DropReason = "replayed"    // not newer than the agent's previous message
	DropOutdated  DropReason = "outdated"    // hello that refers to an old announcement
	DropLater     DropReason = "later_place" // refers to a round that this coordinator has not reached
	DropSealed    DropReason = "sealed"      // message that cannot be decrypted or is not encrypted
	// DropOverflow means that the queue of held messages is full, or that a device requests keys or certificates too
	// often. Messages dropped by a full mailbox are counted by the session.
	DropOverflow DropReason = "overflow"
)

// DropReasons returns all reasons for dropping a message, for use as metric labels.
func DropReasons() []DropReason {
	return []DropReason{DropMalformed, DropVersion, DropSignature, DropForeign, DropUnknown, DropReplayed, DropOutdated,
		DropLater, DropSealed, DropOverflow}
}
