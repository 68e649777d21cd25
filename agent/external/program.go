package external

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/fedmesh/fedmesh/agent/evaluation"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// Config is what the device's owner says of a program.
type Config struct {
	SocketPath     string        // of a program that runs by itself; else Command starts it, with what follows
	Command        []string      // the program and its arguments
	Dir            string        // where it runs
	Env            []string      // NAME=value, beside a few of the agent's own
	MaxMemoryBytes uint64        // bytes of all its processes together; 0 = no limit of its own
	SilenceTimeout time.Duration // the longest silence while it works
	AllowsNetwork  bool          // whether it may use the network
}

// programContext is what a program is told of where it runs.
type programContext struct {
	federation wire.FederationName
	device     wire.AgentID
	log        *slog.Logger
	observe    func(observe.Event)
	ctx        context.Context // of the agent: when it ends nobody waits for a program's first word
}

// program is a program that trains the model of one task. Requests are made one at a time; it runs on between them.
type program struct {
	trainerName string
	cfg         Config
	context     *programContext
	task        *wire.Task
	encodedTask string // the task's
	layout      []learner.TensorSpec
	requestSlot chan struct{} // holds one element while nobody asks

	mu                  sync.Mutex
	run                 *programRun // nil while the program does not run
	rowCount            int         // that it has told last
	rowsVersion         uint64
	lastSnapshotVersion uint64 // version of the last snapshot
	failureCount        uint
	firstRestartDelay   time.Duration // after the first failure
	restartAt           time.Time     // before which it is not started again
	lastRunErr          error         // of the last run
	closed              bool
}

// programRun is one process of a program. What hello says is set once ready is closed; the program's mu guards err.
type programRun struct {
	conn          *frameConversation // the program's mu guards it until then
	processExited <-chan struct{}
	file          *tensorFile
	helloDone     chan struct{}
	helloAnswer   programAnswer
	endErr        error
	lastRequestID uint64 // of the last request
}

func newProgram(name string, cfg Config, p *programContext, t *wire.Task, layout []learner.TensorSpec) *program {
	n := &program{trainerName: name, cfg: cfg, context: p, task: t, encodedTask: encodeTask(t), layout: layout,
		requestSlot: make(chan struct{}, 1), firstRestartDelay: time.Second}
	n.requestSlot <- struct{}{}
	return n
}

// encodeTask is equal for equal tasks.
func encodeTask(t *wire.Task) string { return string(t.AppendEncoding(nil)) }

// maxRestartDelay is between two starts of a program that goes on ending.
const maxRestartDelay = 5 * time.Minute

var errClosed = errors.New("the trainer is not needed any more")

// ensureProcess returns the program's process once it has said hello; it starts one if there is none.
func (p *program) ensureProcess(ctx context.Context) (*programRun, error) {
	p.mu.Lock()
	r := p.run
	switch {
	case p.closed:
		p.mu.Unlock()
		return nil, errClosed
	case r != nil:
	case time.Now().Before(p.restartAt):
		err := p.lastRunErr // the same words as when it ended, or the agent would tell of another problem
		p.mu.Unlock()
		return nil, err
	default:
		r = &programRun{helloDone: make(chan struct{})}
		p.run = r
		go p.startProcess(r)
	}
	p.mu.Unlock()
	select {
	case <-r.helloDone:
		p.mu.Lock()
		defer p.mu.Unlock()
		return r, r.endErr
	case <-ctx.Done():
		return nil, fmt.Errorf("it has not begun yet: %w", task.ErrNoSteps)
	}
}

// awaitRestart is running once there may be another process.
func (p *program) awaitRestart(ctx context.Context) (*programRun, error) {
	p.mu.Lock()
	next := time.NewTimer(time.Until(p.restartAt))
	p.mu.Unlock()
	defer next.Stop()
	select {
	case <-next.C:
	case <-ctx.Done():
	}
	return p.ensureProcess(ctx)
}

// startProcess starts a process and greets it.
func (p *program) startProcess(r *programRun) {
	defer close(r.helloDone)
	file, err := newTensorFile(p.layout)
	if err != nil {
		p.handleProcessEnd(r, err)
		return
	}
	r.file = file
	reach := launch
	if p.cfg.SocketPath != "" {
		reach = connectSocket
	}
	proc, err := reach(p)
	if err != nil {
		p.handleProcessEnd(r, err)
		return
	}
	p.mu.Lock()
	r.conn, r.processExited = startConversation(proc.programInput, proc.programOutput, p.cfg.SilenceTimeout,
		proc.kill), proc.exited
	closed := p.closed
	p.mu.Unlock()
	if closed { // nobody has told the program so
		proc.kill()
	}
	r.helloAnswer, err = r.conn.requestAnswer(context.Background(), 0, helloFrame{frameHello, protocolVersion,
		file.path,
		string(p.context.federation),
		string(p.context.device), p.task.Name, p.cfg.SilenceTimeout.Seconds()}, frameHello)
	if err == nil {
		err = p.checkCapabilities(&r.helloAnswer)
	}
	if err != nil {
		proc.kill()
		p.handleProcessEnd(r, fmt.Errorf("%w%s", err, proc.describeExit()))
		return
	}
	p.mu.Lock()
	p.setRowCount(r.helloAnswer.Rows)
	p.mu.Unlock()
	p.context.observe(ProgramStarted{ConfiguredName: p.trainerName, ReportedName: textPrefix(r.helloAnswer.ProgramName,
		200),
		Rows:             r.helloAnswer.Rows,
		UnconfinedReason: proc.unconfinedReason})
}

// checkCapabilities reports why the task cannot be done with what a program says of itself.
func (p *program) checkCapabilities(said *programAnswer) error {
	needs := func(word string, does bool) bool { return does && !slices.Contains(said.Capabilities, word) }
	switch {
	case said.Version != protocolVersion:
		return fmt.Errorf("the program speaks version %d of the protocol, this agent %d", said.Version, protocolVersion)
	case said.Rows < 1 || said.Rows > maxRows:
		return fmt.Errorf("the program has %d rows; want 1 to %d", said.Rows, maxRows)
	case needs(capabilityMix, p.task.Mixing.IntervalSteps > 0):
		return fmt.Errorf("the task mixes between local steps, and the program's can is %q, without %q",
			said.Capabilities,
			capabilityMix)
	case needs(capabilityProximal, p.task.Training.Proximal > 0):
		return fmt.Errorf("the task has a proximal term, and the program's can is %q, without %q", said.Capabilities,
			capabilityProximal)
	case needs(capabilityInitial, len(p.task.Personal.PersonalTensors) > 0):
		return fmt.Errorf("the task has tensors that are each device's own, and the program's can is %q, without %q",
			said.Capabilities, capabilityInitial)
	}
	return nil
}

// setRowCount takes the number of rows; p.mu is held.
func (p *program) setRowCount(rows int) {
	if rows != p.rowCount {
		p.rowCount = rows
		p.rowsVersion++
	}
}

// handleProcessEnd takes note that a process has ended, or is to end, for that reason.
func (p *program) handleProcessEnd(r *programRun, why error) {
	p.mu.Lock()
	if p.run != r {
		p.mu.Unlock()
		return
	}
	p.run, r.endErr, p.lastRunErr = nil, why, why
	wait, rests := min(p.firstRestartDelay<<min(p.failureCount, 20), maxRestartDelay), p.closed || errors.Is(why,
		errClosed)
	if !rests {
		p.failureCount++
		p.restartAt = time.Now().Add(wait)
	}
	p.mu.Unlock()
	if r.conn != nil {
		r.conn.close()
		if errors.Is(why, errClosed) { // it may end by itself
			select {
			case <-r.processExited:
			case <-time.After(programStopGrace):
			}
		}
		r.conn.killProgram()
	}
	if r.file != nil {
		if err := r.file.remove(); err != nil {
			p.context.log.Warn("a trainer's file could not be removed", "trainer", p.trainerName, "err", err)
		}
	}
	if !rests {
		p.context.observe(ProgramEnded{Trainer: p.trainerName, Err: why, RestartDelay: wait})
	}
}

// stopUntilNeeded ends the program, which is started again for the next one who needs it.
func (p *program) stopUntilNeeded() {
	p.mu.Lock()
	r := p.run
	p.mu.Unlock()
	if r != nil {
		<-r.helloDone
		p.handleProcessEnd(r, errClosed)
	}
}

// close ends the program for good, and waits for its end. One that has not said hello is killed.
func (p *program) close() {
	p.mu.Lock()
	r := p.run
	p.closed = true
	if r != nil && r.conn != nil {
		select {
		case <-r.helloDone:
		default:
			r.conn.killProgram()
		}
	}
	p.mu.Unlock()
	p.stopUntilNeeded()
}

// sendRequest makes one, once what is asked is over: parameters x, if there are any, go to the program; frame makes the
// request of its number, and take what is to be made of the answer. An error that is no *requestRefusedError has ended
// the program.
func (p *program) sendRequest(ctx context.Context, r *programRun, x []float32, want string, frame func(id uint64) any,
	take func(a *programAnswer) error) error {
	select {
	case <-p.requestSlot:
	case <-ctx.Done():
		return task.ErrNoSteps
	}
	defer func() { p.requestSlot <- struct{}{} }()
	var err error
	if x != nil {
		err = r.file.writeParameters(x)
	}
	if err == nil {
		r.lastRequestID++
		var a programAnswer
		if a, err = r.conn.requestAnswer(ctx, r.lastRequestID, frame(r.lastRequestID), want); err == nil {
			err = take(&a)
		}
	}
	if err != nil && !errors.As(err, new(*requestRefusedError)) {
		p.handleProcessEnd(r, err)
	}
	return err
}

// fit has the program take local steps of x. what is that of the request, without its number.
func (p *program) fit(ctx context.Context, r *programRun, x []float32, what fitRequest) (fitted programAnswer,
	err error) {
	err = p.sendRequest(ctx, r, x, frameFitted, func(id uint64) any {
		what.Frame, what.ID = frameFit, id
		return what
	}, func(a *programAnswer) error {
		if err := checkFitAnswer(a, &what, ctx.Err() != nil); err != nil {
			return err
		}
		if err := r.file.readParameters(x, int(what.FirstStep)+int(a.TakenSteps)-1); err != nil {
			return err
		}
		fitted = *a
		p.mu.Lock()
		defer p.mu.Unlock()
		p.failureCount = 0
		p.setRowCount(a.Rows)
		return nil
	})
	return fitted, err
}

// updateRowCount has the program say how many rows it has now, if it can. Nobody waits long while it works on another
// request: what takes long is local steps, whose answer says so too.
func (p *program) updateRowCount(ctx context.Context) error {
	r, err := p.ensureProcess(ctx)
	if err != nil || !slices.Contains(r.helloAnswer.Capabilities, capabilityRows) {
		return err
	}
	select {
	case <-p.requestSlot:
		p.requestSlot <- struct{}{}
	case <-time.After(programStopGrace):
		return nil
	}
	return p.sendRequest(ctx, r, nil, frameRows, func(id uint64) any { return requestWithoutArguments{frameRows, id} },
		func(a *programAnswer) error {
			if a.Rows < 1 || a.Rows > maxRows {
				return fmt.Errorf("the program has %d rows; want 1 to %d", a.Rows, maxRows)
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			p.setRowCount(a.Rows)
			return nil
		})
}

// initialParameters returns the parameters that the program begins with.
func (p *program) initialParameters(ctx context.Context, r *programRun) (x []float32, err error) {
	x = make([]float32, r.file.elementCount)
	err = p.sendRequest(ctx, r, x, frameInitial, func(id uint64) any {
		return requestWithoutArguments{frameInitial,
			id}
	},
		func(*programAnswer) error { return r.file.readParameters(x, 0) })
	return x, err
}

// evaluate has the program evaluate a model.
func (p *program) evaluate(ctx context.Context, r *programRun, x []float32) (f evaluation.ModelScoreByProgram,
	err error) {
	err = p.sendRequest(ctx, r, x, frameEvaluated, func(id uint64) any {
		return requestWithoutArguments{frameEvaluate,
			id}
	},
		func(a *programAnswer) error {
			if a.Rows < 1 || a.Rows > maxRows || a.Risk == nil {
				return fmt.Errorf("the program has evaluated %d rows, without a risk or with none of them", a.Rows)
			}
			f = evaluation.ModelScoreByProgram{Rows: a.Rows, Risk: *a.Risk, OtherMetricByName: a.MetricByName}
			return nil
		})
	return f, err
}

// checkFitAnswer reports why an answer cannot be that to a request.
func checkFitAnswer(a *programAnswer, to *fitRequest, stopped bool) error {
	asked := to.LastStep - to.FirstStep + 1
	switch {
	case a.TakenSteps > asked || a.TakenSteps < asked && !stopped:
		return fmt.Errorf("the program has taken %d local steps, %d were asked for", a.TakenSteps, asked)
	case a.Rows < 1 || a.Rows > maxRows:
		return fmt.Errorf("the program has %d rows; want 1 to %d", a.Rows, maxRows)
	case to.FirstStep == 1 && a.RiskBefore == nil:
		return errors.New("the program does not say its risk_before, though first is 1")
	case to.LastStep == to.BlockSteps && a.TakenSteps > 0 &&
		a.RiskAfter == nil: // a step of a mixing block ends none, stopped or not
		return errors.New("the program does not say its risk_after, though the block ends")
	}
	return nil
}
