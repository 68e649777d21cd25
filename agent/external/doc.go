// Package external trains models with programs of the device's owner, as docs/TRAINER.md has it: a training.Trainer
// and a data.Source around those that train models of our own kinds. A program is not trusted: whatever it does, the
// agent declines a round at most, and tries again.
package external
