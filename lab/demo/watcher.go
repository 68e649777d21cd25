package demo

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/coordinator/aggregation"
	"github.com/fedmesh/fedmesh/coordinator/meshplan"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// watcher shows the coordinator's events on the display and ends the demo. If an event would make the result depend on
// timing, such as a missed deadline, watcher ends the demo with an error.
type watcher struct {
	events  chan func() (done bool, err error) // actions to execute, one for each received event
	ended   chan struct{}
	display display
	began   time.Time
	now     progress
	rough   bool // true if agents are killed, so that rounds may close without some updates
	late    bool // true if the agents' rows may become available after the coordinator has started
}

// progress is the state of the run that the display shows.
type progress struct {
	Agents       int
	Round        int // number of completed training rounds
	Rounds       int
	Participants []wire.AgentID        // participants of the newest round
	Done         map[wire.AgentID]int  // number of local steps E_k of each participant whose update has arrived
	Loss         float64               // mean risk of the base model over the participants' data
	R2           float64               // score R² of the newest model on the held-out year
	Held         float64               // risk of the newest model on the held-out year
	Mesh         *meshplan.MixingGraph // mixing graph of the newest round
	Elapsed      time.Duration
	evaluated    *evaluated // result of the last evaluation by the agents
}

func newWatcher(d display, rounds int) *watcher {
	return &watcher{
		events: make(chan func() (bool, error), 256), ended: make(chan struct{}), display: d, began: time.Now(),
		now: progress{Rounds: rounds, Loss: math.NaN(), R2: math.NaN()},
	}
}

// Observe implements observe.Observer.
func (w *watcher) Observe(event observe.Event) {
	w.later(func() (bool, error) {
		if err := w.take(event); err != nil {
			return false, err
		}
		return w.takeRound(event)
	})
}

// later queues a function that wait will execute.
func (w *watcher) later(take func() (done bool, err error)) {
	select {
	case w.events <- take:
	case <-w.ended:
	}
}

// wait executes the queued functions until the run has finished or one of them returns an error.
func (w *watcher) wait(ctx context.Context) error {
	defer close(w.ended)
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case take := <-w.events:
			w.now.Elapsed = time.Since(w.began)
			done, err := take()
			if done || err != nil {
				return err
			}
		}
	}
}

func (w *watcher) take(event observe.Event) error {
	p := &w.now
	switch f := event.(type) {
	case aggregation.StatisticsReady:
		w.display.standardised(int(f.Rows), p.Agents)
	case aggregation.ModelReady:
		p.Round, p.Loss, p.R2, p.Held = int(f.Version), f.MeanReportedRisk, f.HeldOutScore.R2, f.HeldOutScore.Risk
		w.display.model(p)
	case coordinator.ModelEvaluated:
		p.evaluated = &evaluated{int(f.Version), f.Result}
	case meshplan.MeshComputed:
		p.Mesh = &f.MixingGraph
		if f.Err != nil {
			return fmt.Errorf("mixing graph of round %d has no edges: %w", f.Round, f.Err)
		}
	}
	return nil
}

// takeRound updates the progress with an event of a round. done is true when the run has finished.
func (w *watcher) takeRound(event observe.Event) (done bool, err error) {
	p := &w.now
	switch f := event.(type) {
	case round.AgentEligible:
		p.Agents = f.EligibleAgents
		w.display.gathering(p)
	case round.RoundOpened:
		p.Participants, p.Done = f.Participants, map[wire.AgentID]int{}
		if f.Kind == wire.KindTraining {
			w.display.round(p)
		}
	case round.UpdateAccepted:
		p.Done[f.Agent] = int(f.Update.LocalSteps)
		if f.Update.Kind == wire.KindTraining {
			w.display.round(p)
		}
	case round.RoundClosed:
		if !w.rough && (f.ClosedByDeadline || len(f.MissingAgents) > 0) {
			return false, fmt.Errorf("round %d closed without updates from %v, so the result is not reproducible",
				f.Round,
				f.MissingAgents)
		}
	case round.RoundAbandoned:
		if w.rough {
			return false, nil
		}
		err := fmt.Errorf("round %d was abandoned (%s); missing updates: %v", f.Round, f.Reason, f.MissingAgents)
		return false, errors.Join(err, f.Err)
	case round.AgentUnfit:
		if w.late && p.Participants == nil {
			return false, nil
		}
		return false, fmt.Errorf("agent %s cannot perform the task: %s", f.Agent, f.Reason)
	case round.AgentDeclined:
		return false, fmt.Errorf("agent %s declined round %d: %s", f.Agent, f.Round, f.Reason)
	case round.UpdateRefused:
		return false, fmt.Errorf("update of agent %s was refused: %s", f.Agent, f.Reason)
	case round.RunFinished:
		return true, nil
	case round.GatheringExtended:
		if w.late {
			return false, errors.New("timeout: some agents have no rows")
		}
	}
	return false, nil
}
