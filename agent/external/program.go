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

// Config configures an external training program.
type Config struct {
	// Unix socket of a program that runs independently of the agent; if empty, the agent starts the program with
	// Command
	SocketPath     string
	Command        []string      // command that starts the program, with its arguments
	Dir            string        // working directory of the program
	Env            []string      // additional environment variables of the program, in the form NAME=value
	MaxMemoryBytes uint64        // memory limit for all processes of the program together; 0 means no separate limit
	SilenceTimeout time.Duration // maximum time without output while the program works
	AllowsNetwork  bool          // true if the program may access the network
}

// programContext contains data about the device and callbacks that all external programs share.
type programContext struct {
	federation wire.FederationName
	device     wire.AgentID
	log        *slog.Logger
	observe    func(observe.Event)
	ctx        context.Context // context of the agent; cancelling it stops the wait for the program's hello frame
}

// program is an external program that trains the model of one task. It handles one request at a time and keeps running
// between requests.
type program struct {
	trainerName string
	cfg         Config
	context     *programContext
	task        *wire.Task
	encodedTask string // encoding of the task, for comparison with other tasks
	layout      []learner.TensorSpec
	requestSlot chan struct{} // holds one token while no request is pending

	mu                  sync.Mutex
	run                 *programRun // current process; nil while the program does not run
	rowCount            int         // number of training rows that the program last reported
	rowsVersion         uint64
	lastSnapshotVersion uint64 // value of rowsVersion at the last snapshot
	failureCount        uint
	firstRestartDelay   time.Duration // delay before the restart after the first failure
	restartAt           time.Time     // earliest time of the next start
	lastRunErr          error         // error that ended the previous process
	closed              bool
}

// programRun is one process of an external program. The field helloAnswer may be read after helloDone is closed, and
// endErr is guarded by the mutex mu of the program.
type programRun struct {
	conn          *frameConversation // guarded by the program's mu until helloDone is closed
	processExited <-chan struct{}
	file          *tensorFile
	helloDone     chan struct{}
	helloAnswer   programAnswer
	endErr        error
	lastRequestID uint64 // ID of the last request that was sent to the program
}

func newProgram(name string, cfg Config, p *programContext, t *wire.Task, layout []learner.TensorSpec) *program {
	n := &program{trainerName: name, cfg: cfg, context: p, task: t, encodedTask: encodeTask(t), layout: layout,
		requestSlot: make(chan struct{}, 1), firstRestartDelay: time.Second}
	n.requestSlot <- struct{}{}
	return n
}

// encodeTask returns the encoding of a task as a string, to compare tasks for equality.
func encodeTask(t *wire.Task) string { return string(t.AppendEncoding(nil)) }

// maxRestartDelay is the maximum delay before a restart of a program that keeps failing.
const maxRestartDelay = 5 * time.Minute

var errClosed = errors.New("the trainer was closed because the trainer is no longer needed")

// ensureProcess returns the program's process after its hello message has arrived. It starts the process if none is
// running.
func (p *program) ensureProcess(ctx context.Context) (*programRun, error) {
	p.mu.Lock()
	r := p.run
	switch {
	case p.closed:
		p.mu.Unlock()
		return nil, errClosed
	case r != nil:
	case time.Now().Before(p.restartAt):
		err := p.lastRunErr // same error text as before, to avoid a second report
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
		return nil, fmt.Errorf("the trainer has not started yet: %w", task.ErrNoSteps)
	}
}

// awaitRestart waits until the program may be restarted, and then calls ensureProcess.
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

// startProcess starts a process, sends the hello request and checks the answer.
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
	if closed { // close was called before the process could be killed
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

// checkCapabilities returns an error if the program lacks a capability that the task requires.
func (p *program) checkCapabilities(said *programAnswer) error {
	needs := func(word string, does bool) bool { return does && !slices.Contains(said.Capabilities, word) }
	switch {
	case said.Version != protocolVersion:
		return fmt.Errorf("the trainer uses protocol version %d, but this agent uses version %d", said.Version,
			protocolVersion)
	case said.Rows < 1 || said.Rows > maxRows:
		return fmt.Errorf("the trainer reports %d rows, but the number must be between 1 and %d", said.Rows, maxRows)
	case needs(capabilityMix, p.task.Mixing.IntervalSteps > 0):
		return fmt.Errorf("the task requires mixing between local steps, but the trainer's capabilities (%q) do not "+
			"include %q",
			said.Capabilities,
			capabilityMix)
	case needs(capabilityProximal, p.task.Training.Proximal > 0):
		return fmt.Errorf("the task requires a proximal term, but the trainer's capabilities (%q) do not include %q",
			said.Capabilities,
			capabilityProximal)
	case needs(capabilityInitial, len(p.task.Personal.PersonalTensors) > 0):
		return fmt.Errorf("the task requires personal tensors, but the trainer's capabilities (%q) do not include %q",
			said.Capabilities, capabilityInitial)
	}
	return nil
}

// setRowCount stores the number of rows. The caller must hold p.mu.
func (p *program) setRowCount(rows int) {
	if rows != p.rowCount {
		p.rowCount = rows
		p.rowsVersion++
	}
}

// handleProcessEnd records why a process has ended, or kills the process if it still runs. It also sets the earliest
// time of a restart.
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
		if errors.Is(why, errClosed) { // Give the program time to exit by itself.
			select {
			case <-r.processExited:
			case <-time.After(programStopGrace):
			}
		}
		r.conn.killProgram()
	}
	if r.file != nil {
		if err := r.file.remove(); err != nil {
			p.context.log.Warn("cannot remove the trainer's tensor file", "trainer", p.trainerName, "err", err)
		}
	}
	if !rests {
		p.context.observe(ProgramEnded{Trainer: p.trainerName, Err: why, RestartDelay: wait})
	}
}

// stopUntilNeeded stops the program's process. The next request starts the program again.
func (p *program) stopUntilNeeded() {
	p.mu.Lock()
	r := p.run
	p.mu.Unlock()
	if r != nil {
		<-r.helloDone
		p.handleProcessEnd(r, errClosed)
	}
}

// close stops the program permanently and waits until the process has ended. It kills a program that has not sent its
// hello frame.
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

// sendRequest waits until no other request is pending, writes the parameters x to the tensor file unless x is nil, and
// sends the request that frame builds. The function take processes the answer. Any error except *requestRefusedError
// ends the program.
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

// fit requests local steps from the program; the parameter what describes the steps. The steps start from the
// parameters x and replace x by the result.
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

// updateRowCount requests the current number of rows if the program supports this. It waits only briefly for another
// request to end, because only local steps take long, and their answer also contains the number of rows.
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
				return fmt.Errorf("the trainer reports %d rows, but the number must be between 1 and %d",
					a.Rows, maxRows)
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			p.setRowCount(a.Rows)
			return nil
		})
}

// initialParameters requests the program's initial model parameters.
func (p *program) initialParameters(ctx context.Context, r *programRun) (x []float32, err error) {
	x = make([]float32, r.file.elementCount)
	err = p.sendRequest(ctx, r, x, frameInitial, func(id uint64) any {
		return requestWithoutArguments{frameInitial,
			id}
	},
		func(*programAnswer) error { return r.file.readParameters(x, 0) })
	return x, err
}

// evaluate requests an evaluation of the model with parameters x.
func (p *program) evaluate(ctx context.Context, r *programRun, x []float32) (f evaluation.ModelScoreByProgram,
	err error) {
	err = p.sendRequest(ctx, r, x, frameEvaluated, func(id uint64) any {
		return requestWithoutArguments{frameEvaluate,
			id}
	},
		func(a *programAnswer) error {
			if a.Rows < 1 || a.Rows > maxRows || a.Risk == nil {
				return fmt.Errorf("invalid evaluation by the trainer: the answer must contain risk and a number of "+
					"rows between 1 and %d, but rows is %d", maxRows, a.Rows)
			}
			f = evaluation.ModelScoreByProgram{Rows: a.Rows, Risk: *a.Risk, OtherMetricByName: a.MetricByName}
			return nil
		})
	return f, err
}

// checkFitAnswer validates the program's answer to a request for local steps. The parameter stopped is true if the
// agent has interrupted the steps.
func checkFitAnswer(a *programAnswer, to *fitRequest, stopped bool) error {
	asked := to.LastStep - to.FirstStep + 1
	switch {
	case a.TakenSteps > asked || a.TakenSteps < asked && !stopped:
		return fmt.Errorf("the trainer took %d local steps, but %d were requested", a.TakenSteps, asked)
	case a.Rows < 1 || a.Rows > maxRows:
		return fmt.Errorf("the trainer reports %d rows, but the number must be between 1 and %d", a.Rows, maxRows)
	case to.FirstStep == 1 && a.RiskBefore == nil:
		return errors.New("risk_before is missing in the trainer's answer: this field is required if first is 1")
	case to.LastStep == to.BlockSteps && a.TakenSteps > 0 &&
		a.RiskAfter == nil: // The risk is not required after a step within a block.
		return errors.New("risk_after is missing in the trainer's answer: this field is required at the end of a block")
	}
	return nil
}
