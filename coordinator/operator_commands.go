package coordinator

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/round"
)

// ErrStoppedBetweenRounds is the error that Run returns after StopBetweenRounds, as soon as no round is open.
var ErrStoppedBetweenRounds = errors.New("the coordinator stopped between two rounds, as requested")

// SetOperatorCommand continues, pauses or stops the run. If now is true, an open round is abandoned; otherwise it
// continues to its end. SetOperatorCommand returns an error if the owner goroutine does not respond before ctx ends.
func (c *Coordinator) SetOperatorCommand(ctx context.Context, course round.OperatorCommand, now bool) error {
	return c.runOnOwnerLoop(ctx, func() { c.applyOperatorCommand(course, now) })
}

// StopBetweenRounds makes Run return ErrStoppedBetweenRounds as soon as no round is open. If now is true, an open round
// is abandoned.
func (c *Coordinator) StopBetweenRounds(ctx context.Context, now bool) error {
	return c.runOnOwnerLoop(ctx, func() {
		c.stopsBetweenRounds = true
		c.applyOperatorCommand(round.CommandPause, now)
	})
}

func (c *Coordinator) applyOperatorCommand(course round.OperatorCommand, now bool) {
	if c.stopsBetweenRounds {
		course = round.CommandPause
	}
	c.stepMachine(round.OperatorCommandChanged{Command: course, AbandonsRound: now})
}

// runOnOwnerLoop calls do on the owner goroutine and waits until it returns.
func (c *Coordinator) runOnOwnerLoop(ctx context.Context, do func()) error {
	done := make(chan struct{})
	err := c.ownerLoop.RunOnLoopContext(ctx, func() {
		defer close(done)
		do()
	})
	if err == nil {
		select {
		case <-done:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if err != nil {
		return fmt.Errorf("coordinator: the command was not executed in time: %w", err)
	}
	return nil
}

// Backup writes a backup of the state folder, for runs.RestoreBackup. The coordinator continues to run.
func (c *Coordinator) Backup(ctx context.Context, w io.Writer) error {
	var slots []runs.BackupFile
	var failed error
	err := c.runOnOwnerLoop(ctx, func() { slots, failed = c.stateFolder.ReadSlotFiles() })
	if err == nil {
		err = failed
	}
	if err == nil {
		err = c.stateFolder.WriteBackup(w, slots)
	}
	if err != nil {
		return fmt.Errorf("cannot back up the state folder %s: %w", c.stateFolder.Dir, err)
	}
	return nil
}
