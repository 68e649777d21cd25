// Package transfer moves blobs in chunks over a transport that may lose,
// double, delay and reorder every message: models and tasks are pulled from
// retained messages (BlobPuller), updates are sent against credit
// (UpdateSender on the agent, UpdateReceiver on the coordinator).
//
// Each machine is a pure state machine. It reads no clock, starts no
// goroutine and sends nothing: events go in, effects come out, and its host
// does the I/O. The host's whole loop is
//
//	effects := machine.Step(now, Start{})
//	for {
//		carry out effects, in order
//		arm the one timer at machine.Deadline(), or stop it
//		effects = machine.Step(now, next event, or Tick{} when the timer fires)
//	}
//
// A Tick that comes too early or twice does nothing. A machine that has ended
// answers every event with no effects. A machine takes a link for granted
// until it is told Disconnected; a host without one says so before Start.
//
// Where the chunks go is a ChunkStorage, which the host opens when it is asked to
// (OpenStorage, StorageOpened): in memory, or in a file that outlives the process.
//
// Trust: a chunk's hash stands in a manifest, the manifest's
// hash in a signed announcement (models) or the manifest in a signed envelope
// (updates). Signatures, and the order of envelopes by their sequence, are the
// host's to check before it steps a machine.
package transfer
