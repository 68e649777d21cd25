// Package enrol admits devices to a federation. A person carries a token to the device. The device generates its keys
// and sends a join request to the listener of the Registrar. The Registrar uses up the token, adds the device to the
// list of agents, and answers with all that the device needs. See docs/PROTOCOL.md, section 14.
//
// The Registrar guarantees:
//
//   - A token is recorded as used on disk before the device receives an answer. If the answer is lost, the device can
//     repeat its request with the same keys until the token expires. Requests with other keys are refused.
//   - A reader of the files cannot join: they contain the public keys of tokens, never their secrets.
//   - A client without a valid token learns only that its token is invalid. It has five attempts per minute.
package enrol
