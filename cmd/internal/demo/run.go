package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/term"

	"github.com/fedmesh/fedmesh/cmd/internal/logging"
	"github.com/fedmesh/fedmesh/coordinator"
)

// Run runs the demo to its end and returns what it found.
func Run(ctx context.Context, o Options) (_ *Result, err error) {
	began := time.Now()
	log, err := logging.New(o.Stderr, logging.Options{Level: "warn", Format: "text"})
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "fedmesh-demo-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	fed, err := layOut(o, dir, log)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, fed.cleanUp(ctx)) }()
	compared, err := baselines(fed.files)
	if err != nil {
		return nil, err
	}
	show := newDisplay(o, fed)
	show.start(heading{
		Broker: fed.coordinator.Broker.URL, Embedded: fed.server != nil, Agents: len(fed.agents), Features: len(airFeatures),
		Model: o.Model, Rounds: o.rounds(), L: o.Participants, Seed: o.Seed,
	})
	w := newWatcher(show, o.rounds())
	if err := fed.run(ctx, w, log); err != nil {
		return nil, err
	}
	r := newResult(compared, &w.now)
	if r.Model, err = modelHash(fed.coordinator.StateDir); err != nil {
		return nil, err
	}
	r.Seconds = time.Since(began).Seconds()
	show.result(r)
	if o.Out == "" {
		return r, nil
	}
	return r, writeOut(o.Out, fed.coordinator.StateDir, r)
}

// cleanUp stops the embedded broker, or takes what the demo retained at the
// user's broker away again.
func (fed *federation) cleanUp(ctx context.Context) error {
	if fed.server != nil {
		return fed.server.Close()
	}
	return fed.sweep(context.WithoutCancel(ctx))
}

func newDisplay(o Options, fed *federation) display {
	if o.JSON {
		return jsonLines{json.NewEncoder(o.Stdout)}
	}
	if f, ok := o.Stdout.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 40 {
			return &live{plain: plain{o.Stdout}, width: width, all: fed.files.stations}
		}
	}
	return plain{o.Stdout}
}

func modelHash(stateDir string) (string, error) {
	models, _, err := coordinator.OpenModels(stateDir)
	if err != nil {
		return "", err
	}
	latest, err := models.Latest()
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", latest.Digest), nil
}
