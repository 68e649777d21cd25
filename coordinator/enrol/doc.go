// Package enrol takes devices into a federation. A person carries a token to the device; the device makes its keys, and
// asks for admission over the Listener of the Desk, which burns the token, puts the device into the list, and answers
// with all that the device needs: docs/PROTOCOL.md, section 14.
//
// The desk promises:
//
//   - A token is burnt, and that is on the disk, before anything is given for it. Where the answer was lost, the device
//     asks again with the same keys and gets the same answer, until the token expires; other keys are refused.
//   - The disk lets nobody join: it holds public keys of tokens, never their secrets.
//   - Whoever has no token learns nothing but that, and has five tries a minute.
package enrol
