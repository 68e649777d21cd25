// Package external trains models with programs of the device's owner; docs/TRAINER.md describes the protocol. It wraps
// the built-in training.Trainer and data.Source, which still serve the built-in models. A program is not trusted: if it
// fails, the agent declines the round and tries again.
package external
