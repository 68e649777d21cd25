package sim

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/fedmesh/fedmesh/lab/sim/data"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// Progress is the number of completed rounds and the total number of rounds, summed over all runs.
type Progress struct{ Done, Total int64 }

// Observer is called with the progress of a simulation, from several goroutines. Observer may be nil.
type Observer func(Progress)

// Run validates an experiment, creates its problem instances, and simulates it on all cores. If a run diverges, Run
// returns a [*Divergence] as error, and a result with the records before the divergence.
func Run(ctx context.Context, e Experiment, o Observer) (*Result, error) {
	if e.Load == "" {
		if err := e.Read(); err != nil {
			return nil, err
		}
	}
	if err := e.Validate(); err != nil {
		return nil, err
	}
	if e.Precision == Float32 {
		return RunInstances(ctx, e, source[float32](e), o)
	}
	return RunInstances(ctx, e, source[float64](e), o)
}

// source returns the function that loads or creates the instance of each run.
func source[T learner.Float](e Experiment) func(run int) (Instance[T], error) {
	if e.Load != "" {
		return loaded[T](e)
	}
	return instances[T](e)
}

// RunInstances runs a simulation like [Run], but with problem instances that the caller provides. It calls instance
// once for each run, concurrently; the results may be the same instance for all runs. It ignores Data, Agents, Weights
// and the graph of the experiment.
func RunInstances[T learner.Float](ctx context.Context, e Experiment, instance func(run int) (Instance[T], error),
	o Observer) (*Result, error) {
	e.Agents = 0 // the instance determines the number of agents
	if err := e.validate(); err != nil {
		return nil, err
	}
	if e.Dump != "" {
		if err := writeExperiment(&e); err != nil {
			return nil, err
		}
	}
	goroutines := runtime.GOMAXPROCS(0)
	outer := min(goroutines, e.Runs)
	s := &simulation[T]{
		e: e, instance: instance, observer: o, rounds: e.recorded(), tracks: make([]*runRecord, e.Runs),
		inner: (goroutines + outer - 1) / outer,
	}
	s.diverged.Store(math.MaxInt64)
	var next atomic.Int64
	var group sync.WaitGroup
	errs := make([]error, e.Runs)
	for range outer {
		group.Go(func() {
			for run := int(next.Add(1)) - 1; run < e.Runs && ctx.Err() == nil; run = int(next.Add(1)) - 1 {
				errs[run] = s.run(ctx, run)
			}
		})
	}
	group.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r := collect(e, s.rounds, s.tracks)
	r.Experiment.Agents, r.Network = s.tracks[0].agents, s.tracks[0].network
	if r.Divergence != nil {
		if r.Network != nil {
			r.Network.Health = nil
		}
		return r, r.Divergence
	}
	return r, nil
}

// simulation is the state of all runs of an experiment.
type simulation[T learner.Float] struct {
	e        Experiment
	instance func(run int) (Instance[T], error)
	observer Observer
	rounds   []int
	tracks   []*runRecord
	inner    int          // number of goroutines per run
	done     atomic.Int64 // number of completed rounds, summed over all runs
	diverged atomic.Int64 // earliest round in which a run has diverged; all runs stop there
}

// runRecord holds the measurements of a run.
type runRecord struct {
	agents     int
	recorder   *recorder
	network    *Network
	divergence *Divergence
}

// first returns the number of the initial record: 0, or 1 for FedDec.
func (e *Experiment) first() int {
	if e.Algorithm == spec.FedDec {
		return 1
	}
	return 0
}

// recorded returns the numbers of the rounds to record: the first round, every e.Record-th round, and the last round.
func (e *Experiment) recorded() []int {
	every := e.Record
	if every == 0 {
		every = max(1, e.Rounds/200)
	}
	rounds := []int{e.first()}
	for i := e.first() + 1; i <= e.Rounds; i++ {
		if i%every == 0 || i == e.Rounds {
			rounds = append(rounds, i)
		}
	}
	return rounds
}

// run simulates one run. A divergence is recorded and not returned as an error.
func (s *simulation[T]) run(ctx context.Context, run int) error {
	in, err := s.instance(run)
	if err != nil {
		return err
	}
	e := s.e
	c, err := newRunConstants(&e, run, in)
	if err != nil {
		return err
	}
	if e.Dump != "" {
		if err := checkDumpSize(c); err != nil {
			return err
		}
		c.tape = &drawRecorder[T]{}
	}
	t := &runRecord{agents: c.agents, recorder: newRecorder(in.Problem, len(e.Personal.Layers) > 0)}
	s.tracks[run] = t
	var a algorithm
	if e.Algorithm == spec.FedDec {
		a = newFedDec(c, s.inner)
	} else {
		a = newFedAvg(c, s.inner)
	}
	next := 0
	for i := e.first(); i <= e.Rounds && int64(i) <= s.diverged.Load() && ctx.Err() == nil; i++ {
		if i > e.first() {
			err = a.step(i)
		}
		if err == nil && i == s.rounds[next] {
			next++
			err = t.recorder.record(a, i)
		}
		if err == nil && run == 0 && e.Trajectory != nil {
			at := State{Round: i, W: make([]float64, in.Problem.Model.ParameterCount()), Server: map[string][]float64{},
				Agents: map[string]map[string][]float64{}}
			a.model(at.W)
			a.keeps(&at)
			if err := e.Trajectory(at); err != nil {
				return err
			}
		}
		var lacking *replayError
		if errors.As(err, &lacking) {
			return fmt.Errorf("%s: %w", runDir(e.Load, run), err)
		}
		if err != nil {
			t.divergence = &Divergence{Run: run, Round: i, Reason: err.Error()}
			s.divergedAt(int64(i))
			break
		}
		if c.tape != nil {
			if err := c.tape.checkCapacity(); err != nil {
				return &spec.FieldError{Key: "rounds", Problem: err.Error()}
			}
		}
		s.progress(i)
	}
	if f, ok := a.(*feddec[T]); ok && run == 0 && ctx.Err() == nil {
		t.network = f.network()
	}
	if c.tape != nil {
		return c.tape.dump(c, run, t.recorder.last)
	}
	return nil
}

// divergedAt records that a run has diverged in round i, and keeps the earliest of these rounds.
func (s *simulation[T]) divergedAt(i int64) {
	for {
		old := s.diverged.Load()
		if i >= old || s.diverged.CompareAndSwap(old, i) {
			return
		}
	}
}

func (s *simulation[T]) progress(i int) {
	if i == s.e.first() {
		return
	}
	done := s.done.Add(1)
	if s.observer != nil {
		s.observer(Progress{Done: done, Total: int64(s.e.Runs) * int64(s.e.Rounds-s.e.first())})
	}
}

// newRunConstants validates the experiment against an instance and computes the constants of a run.
func newRunConstants[T learner.Float](e *Experiment, run int, in Instance[T]) (*runConstants[T], error) {
	p := in.Problem
	e.Agents = p.Agents
	if e.Participants.Count == 0 {
		e.Participants.Count = p.Agents
	}
	seed := runSeed(e.Seed, run)
	if err := check(e, in, seed); err != nil {
		return nil, err
	}
	c := &runConstants[T]{e: e, seed: seed, in: in, agents: p.Agents, schedule: e.schedule(&p.Objective, seed)}
	for _, v := range p.Weights {
		c.total += v
	}
	c.buckets = make([]uint8, min(c.agents, maxNamed))
	if r := in.replay; r != nil {
		for k, b := range r.buckets {
			c.buckets[k] = uint8(b + 1)
		}
	}
	if err := c.drawLiars(); err != nil {
		return nil, err
	}
	for _, label := range p.Labels {
		c.keys = append(c.keys, task.AgentRandomKey(wire.AgentID(label)))
	}
	if e.StepSize.IsDiminishing && e.Algorithm == spec.FedAvg {
		c.maxLocalSteps = uint64(e.mostSteps(seed))
	}
	if e.RecordMeanIterate && (e.Participants.Count != p.Agents || !e.LocalSteps.allEqual() ||
		p.Objective.Excess == nil) {
		return nil, &spec.FieldError{Key: "shadow",
			Problem: fmt.Sprintf("requires all %d agents in each round, the same number of local steps for all "+
				"agents, and a known minimum", p.Agents)}
	}
	return c, nil
}

// schedule returns the step size schedule of the experiment. If the experiment omits a constant, the constant of the
// problem is used.
func (e *Experiment) schedule(o *data.Objective, seed uint64) learner.StepSizeSchedule {
	s, h := e.StepSize, e.Mixing.ServerEvery
	if s.StrongConvexity == 0 {
		s.StrongConvexity = o.StrongConvexity
	}
	if s.Smoothness == 0 {
		s.Smoothness = o.Smoothness
	}
	if s.IsDiminishing && e.Algorithm == spec.FedAvg {
		h = e.mostSteps(seed)
	}
	return learner.NewStepSizeSchedule(s, h)
}

// mostSteps returns the largest number of local steps over all agents of a run.
func (e *Experiment) mostSteps(seed uint64) int {
	most := e.LocalSteps.At(0, seed)
	for k := 1; k < e.Agents && !e.LocalSteps.allEqual(); k++ {
		most = max(most, e.LocalSteps.At(k, seed))
	}
	return int(most)
}
