// Package transfer sends blobs in chunks over a transport that may lose, duplicate, delay and reorder every message.
// Agents download models and tasks from retained messages (BlobPuller). Agents upload updates with credit-based flow
// control (UpdateSender on the agent, UpdateReceiver on the coordinator).
//
// Each type is a pure state machine. It reads no clock, starts no goroutine and sends no messages: its host passes
// events in, receives effects and performs the I/O. The host's loop is
//
//	effects := machine.Step(now, Start{})
//	for {
//		carry out effects, in order
//		arm the one timer at machine.Deadline(), or stop it
//		effects = machine.Step(now, next event, or Tick{} when the timer fires)
//	}
//
// An early or repeated Tick has no effect. A machine that has ended returns no effects. A machine assumes that the link
// is up until it receives LinkDown; a host without a link therefore sends LinkDown before Start.
//
// The chunks are stored in a ChunkStorage, which the host opens on request (OpenStorage, StorageOpened): in memory, or
// in a file that persists across restarts.
//
// Trust: a manifest contains the hashes of the chunks. The hash of a model's manifest is in a signed announcement; the
// manifest of an update is in a signed envelope. The host checks signatures and the order of sequence numbers before it
// calls Step.
package transfer
