package devices

// DropReason is the reason why a received message was not used. It is a metric's label.
type DropReason string

// The reasons for dropping a message.
const (
	DropMalformed DropReason = "malformed"
	DropVersion   DropReason = "version"
	DropSignature DropReason = "bad_signature"
	DropForeign   DropReason = "foreign" // another federation, or a topic that is not the sender's
	DropUnknown   DropReason = "unknown_agent"
	DropReplayed  DropReason = "replayed"    // not newer than the previous message of this agent
	DropOutdated  DropReason = "outdated"    // a hello that names an old announcement
	DropLater     DropReason = "later_place" // about a round that this coordinator has not reached
	DropSealed    DropReason = "sealed"      // cannot be opened, or is not sealed
	// DropOverflow: the queue of messages that wait until this coordinator leads is full, or the device requests keys
	// or certificates too often. The session counts messages for which the mailbox was full.
	DropOverflow DropReason = "overflow"
)

// DropReasons returns all reasons, for closed label sets.
func DropReasons() []DropReason {
	return []DropReason{DropMalformed, DropVersion, DropSignature, DropForeign, DropUnknown, DropReplayed, DropOutdated,
		DropLater, DropSealed, DropOverflow}
}
