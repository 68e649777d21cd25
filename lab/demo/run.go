package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/internal/logging"
)

// errInterrupted is returned if the context ends before the run has finished.
var errInterrupted = errors.New("interrupted")

// Run runs the demonstration until the run has finished, and returns the result.
func Run(ctx context.Context, o Options) (_ *Result, err error) {
	began := time.Now()
	show, stderr := newDisplay(o)
	o.Stderr = stderr
	log, dir, err := o.prepare()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	lay := layOut
	if o.Streams {
		lay = layOutStreams
	}
	fed, err := lay(o, dir, log)
	if err != nil {
		return nil, err
	}
	r, err := fed.measure(ctx, show)
	if err != nil {
		show.failed()
		if ctx.Err() != nil {
			err = errInterrupted
		}
		return nil, errors.Join(err, fed.cleanUp(ctx))
	}
	r.Seconds = time.Since(began).Seconds()
	if o.Out != "" {
		if err := writeOut(o.Out, fed.coordinator.StateDir, r); err != nil {
			return nil, errors.Join(err, fed.cleanUp(ctx))
		}
	}
	show.result(r)
	return r, fed.cleanUp(ctx)
}

// prepare creates the logger, the output folder and a temporary folder. The caller must remove the temporary folder.
func (o *Options) prepare() (log *slog.Logger, dir string, err error) {
	if o.Page {
		o.recent = new(logging.RecentRecords)
	}
	if log, err = logging.New(o.Stderr, logging.Options{Level: "warn", Format: "text", Recent: o.recent}); err != nil {
		return nil, "", err
	}
	if o.Out != "" { // Create the folder now, so that an invalid path fails before the run.
		if err := os.MkdirAll(o.Out, 0o777); err != nil {
			return nil, "", fmt.Errorf("--out: %w", err)
		}
	}
	dir, err = os.MkdirTemp("", "fedmesh-demo-")
	return log, dir, err
}

// measure runs the federation and compares the federated model with the baseline models.
func (fed *federation) measure(ctx context.Context, show display) (*Result, error) {
	compared, err := baselines(fed.files)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	url, err := fed.serve(ctx)
	if err != nil {
		return nil, err
	}
	o := &fed.options
	show.start(heading{
		Broker: strings.Join(fed.coordinator.Broker.URLs, ", "), Embedded: fed.server != nil, Agents: len(fed.agents),
		Features: len(fed.files.features),
		Model:    o.Model, Rounds: o.rounds(), L: o.draws(), Seed: o.Seed, Metrics: url,
		Rule: fed.coordinator.Round.Aggregation.Rule, Attack: o.Attack, Liars: o.Attackers,
		Stations: fed.files.stations,
	})
	if err := fed.await(ctx); err != nil {
		return nil, err
	}
	w := newWatcher(show, o.rounds())
	w.late = o.Streams
	if err := fed.run(ctx, w); err != nil {
		return nil, err
	}
	r := newResult(compared, &w.now)
	if r.Predictions = fed.predictions; o.Streams {
		r.Task = "streams"
	}
	r.Model, err = modelHash(fed.coordinator.StateDir)
	return r, err
}

func modelHash(stateDir string) (string, error) {
	models, _, err := runs.OpenModelsOfCurrentRun(stateDir)
	if err != nil {
		return "", err
	}
	latest, err := models.Latest()
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", latest.Digest), nil
}
