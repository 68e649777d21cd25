package part

// DropReason is the reason for dropping an incoming message. It is used as a metric label.
type DropReason string

// Reasons for dropping a message.
const (
	DropMalformed    DropReason = "malformed"
	DropVersion      DropReason = "version"
	DropSignature    DropReason = "bad_signature"
	DropMisaddressed DropReason = "foreign"  // message for another federation, sender or topic
	DropUnwanted     DropReason = "unwanted" // the agent does not expect a message of this type
	DropUnsealFailed DropReason = "sealed"   // missing encryption, failed decryption or unknown key
	// DropOlderEpoch means that the message has a lower epoch than the last announcement that the agent followed.
	DropOlderEpoch DropReason = "older_epoch"
	// DropNewerRoot means that the message refers to a root document that the agent has not received yet.
	DropNewerRoot DropReason = "newer_root"
	DropOverflow  DropReason = "overflow" // the receive queue was full; counted by the MQTT session, not an event
)

// DropReasons returns all reasons for dropping a message. The metrics use them as label values.
func DropReasons() []DropReason {
	return []DropReason{DropMalformed, DropVersion, DropSignature, DropMisaddressed, DropUnwanted, DropUnsealFailed,
		DropOlderEpoch, DropNewerRoot, DropOverflow}
}
