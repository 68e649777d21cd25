package part

// DropReason is why an incoming message was not used. It is a metric's label.
type DropReason string

// The reasons for dropping a message.
const (
	DropMalformed    DropReason = "malformed"
	DropVersion      DropReason = "version"
	DropSignature    DropReason = "bad_signature"
	DropMisaddressed DropReason = "foreign"  // another federation, sender or topic
	DropUnwanted     DropReason = "unwanted" // nothing here waits for it
	DropUnsealFailed DropReason = "sealed"   // cannot be opened, is not sealed, or announces no valid key
	// DropOlderEpoch: the coordinator's epoch is lower than the epoch of the announcement that the agent obeys.
	DropOlderEpoch DropReason = "older_epoch"
	// DropNewerRoot: the coordinator uses a root document that the agent does not have yet.
	DropNewerRoot DropReason = "newer_root"
	DropOverflow  DropReason = "overflow" // the mailbox was full: counted by the session, not an event
)

// DropReasons returns all reasons, for closed label sets.
func DropReasons() []DropReason {
	return []DropReason{DropMalformed, DropVersion, DropSignature, DropMisaddressed, DropUnwanted, DropUnsealFailed,
		DropOlderEpoch, DropNewerRoot, DropOverflow}
}
