package part

// DropReason is the reason for dropping an incoming message. It is used as a metric label.
type DropReason string

// Reasons for dropping a message.
const (
	DropMalformed    DropReason = "malformed"
	DropVersion      DropReason = "version"
	DropSignature    DropReason = "bad_signature"
	DropMisaddressed DropReason = "foreign"  // another federation, sender or topic
	DropUnwanted     DropReason = "unwanted" // unexpected message
	DropUnsealFailed DropReason = "sealed"   // seal that cannot be opened, is missing, or names no valid key
	// DropOlderEpoch means that the coordinator's epoch is lower than the epoch of the obeyed announcement.
	DropOlderEpoch DropReason = "older_epoch"
	// DropNewerRoot means that the coordinator uses a root document that the agent does not have yet.
	DropNewerRoot DropReason = "newer_root"
	DropOverflow  DropReason = "overflow" // the mailbox was full; counted by the session, not an event
)

// DropReasons returns all reasons, for closed label sets.
func DropReasons() []DropReason {
	return []DropReason{DropMalformed, DropVersion, DropSignature, DropMisaddressed, DropUnwanted, DropUnsealFailed,
		DropOlderEpoch, DropNewerRoot, DropOverflow}
}
