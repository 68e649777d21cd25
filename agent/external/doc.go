// Package external trains models with programs that the device's owner provides, as docs/TRAINER.md describes, and
// wraps the built-in training.Trainer and data.Source for built-in models. Programs are not trusted: if one fails, the
// agent declines the round and tries again.
package external
