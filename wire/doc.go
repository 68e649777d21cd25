// Package wire defines the encoding of all fedmesh messages: signed envelopes, the messages inside them, tensors, blob
// manifests and chunks. It also defines the limits that are checked before memory is allocated.
//
// The encoding is fixed little-endian binary. It is written and read field by field, without reflection and without
// optional fields. docs/PROTOCOL.md describes the same format for clients in other languages, and the golden files
// under testdata are examples.
//
// A message is processed as follows:
//
//	SignEnvelope(nil, Header{...}, body, key) → bytes → ParseEnvelope(bytes) → Verify(key) → DecodeX(body)
//
// ParseEnvelope checks the form and the body hash. Verify checks the Ed25519 signature. The DecodeX functions check
// everything else that does not depend on the state of the round. Package round checks whether a message is timely.
package wire
