package history

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/fedmesh/fedmesh/coordinator/runs"
)

const (
	// pollInterval is how often Follow looks for rounds, and tries again first.
	pollInterval = 2 * time.Second
	// mostPause is between two tries while the server is away.
	mostPause = 5 * time.Minute
)

// FollowToMLflow logs the history of a state folder to an MLflow server until ctx ends: first what the server
// lacks, then each round soon after its line is written. It only reads the file, which is the queue: no round waits for
// it, it holds no more than the versions that the server has of a run while it catches up, and what the server has
// missed is logged when it is back, also by a later process. told gets the result of each try.
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
	loggedOffset int64 // everything before it is logged
}

// logNewLines logs the lines that are there.
func (f *historyFollower) logNewLines() error {
	if err := f.sink.OpenExperiment(); err != nil { // also before the first round: a wrong URL is told at the start
		return err
	}
	at := f.loggedOffset
	for e, err := range runs.ReadHistoryFromOffset(f.dir, &at) {
		var file *fs.PathError
		switch {
		case errors.Is(err, fs.ErrNotExist) && f.loggedOffset == 0: // no round is over yet
			return nil
		case errors.As(err, &file):
			return err
		case err != nil: // a damaged line: `history export` names it
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
