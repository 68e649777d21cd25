// Package wire defines every byte that leaves a fedmesh process: signed
// envelopes, the messages inside them, tensors, blob manifests and chunks,
// and the limits that are checked before anything is allocated.
//
// The encoding is fixed little-endian binary, written and read field by
// field; there is no reflection and no optional field. docs/PROTOCOL.md is
// the same format in words, for clients in other languages, and the golden
// files under testdata are its examples.
//
// A message travels as
//
//	SignEnvelope(nil, Header{...}, body, key) → bytes → ParseEnvelope(bytes) → Verify(key) → DecodeX(body)
//
// Open checks form and body hash, Verify the Ed25519 signature, and the
// DecodeX functions everything else that can be checked without knowing the
// state of the round. Whether a message is timely is for package round.
package wire
