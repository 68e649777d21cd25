// Package external trains models with programs of the device's owner. docs/TRAINER.md describes the protocol. The
// package wraps the built-in training.Trainer and data.Source, which still serve built-in models. Programs are not
// trusted: if one fails, the agent declines the round and tries again.
package external
