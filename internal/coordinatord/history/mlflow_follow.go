package history

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/fedmesh/fedmesh/coordinator/runs"
)

const (
	// pollInterval is the interval between two reads of the history, and the delay before the first retry.
	pollInterval = 2 * time.Second
	// mostPause is the maximum delay between two retries.
	mostPause = 5 * time.Minute
)

// FollowToMLflow logs the history of a state folder to an MLflow server until ctx ends. It first logs the rounds that
// the server lacks, then each new round soon after it is written. The history file serves as the queue: no round waits
// for the server, and missed rounds are logged later, even by another process. told receives the result of each
// attempt.
func FollowToMLflow(ctx context.Context, dir string, t *MLflowTracking, told func(error)) {
	f := historyFollower{dir: dir, sink: NewMLflow(ctx, t)}
	pause := pollInterval
	for ctx.Err() == nil {
		err := f.logNewLines()
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			pause = pollInterval
		default:
			f.sink.ForgetServerState()
		}
		told(err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		if err != nil {
			pause = min(2*pause, mostPause)
		}
	}
}

type historyFollower struct {
	dir          string
	sink         *MLflowSink
	loggedOffset int64 // offset in the history up to which everything is logged
}

func (f *historyFollower) logNewLines() error {
	// also before the first round, so that a wrong URL is reported at the start
	if err := f.sink.OpenExperiment(); err != nil {
		return err
	}
	at := f.loggedOffset
	for e, err := range runs.ReadHistoryFromOffset(f.dir, &at) {
		var file *fs.PathError
		switch {
		case errors.Is(err, fs.ErrNotExist) && f.loggedOffset == 0: // no round has ended yet
			return nil
		case errors.As(err, &file):
			return err
		case err != nil: // skip damaged lines, which `history export` reports
		default:
			if err := f.sink.WriteRound(&e); err != nil {
				return err
			}
		}
	}
	if err := f.sink.Flush(); err != nil {
		return err
	}
	f.loggedOffset = at
	f.sink.MarkCaughtUp()
	return nil
}
