package external

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/agent/predict"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/wire"
)

// ProtocolTestFinding is the result of one protocol test of an external program.
type ProtocolTestFinding struct {
	ProtocolPart string // part of the protocol that was tested
	Problem      error  // reason for the failure; nil if the test passed
	Summary      string // measurements of a passed test, as text
}

// testStepCount is the number of local steps in a test.
const testStepCount = 3

// ProtocolTest tests whether an external program implements the trainer protocol.
type ProtocolTest struct {
	Config
	Device    wire.AgentID         // device ID that is sent to the program
	Layout    []learner.TensorSpec // layout of the model's tensors
	Base      []float32            // model parameters from which the tests start
	StepSize  float64
	Logger    *slog.Logger
	OnFinding func(ProtocolTestFinding) // called with the result of each test
}

// RunTest tests the program against docs/TRAINER.md: hello, local steps, reproducibility, optional capabilities, stop
// and end. It reports whether all tests have passed.
func (t *ProtocolTest) RunTest(ctx context.Context) bool {
	c := &protocolTestRun{ProtocolTest: t, ctx: ctx, allPassed: true}
	if c.testHello() {
		c.testLocalSteps()
		c.testMixing()
		c.testProximalTerm()
		c.testInitialParameters()
		c.testRowCount()
		c.testEvaluation()
		c.testPrediction()
		c.testStop()
	}
	c.testEndOfInput()
	return c.allPassed
}

// protocolTestRun is the state of a running ProtocolTest.
type protocolTestRun struct {
	*ProtocolTest
	ctx       context.Context
	allPassed bool
	p         *program
	run       *programRun
}

// reportFinding reports the result of one test. It returns true if the test has passed.
func (c *protocolTestRun) reportFinding(what string, wrong error, format string, args ...any) bool {
	c.OnFinding(ProtocolTestFinding{what, wrong, fmt.Sprintf(format, args...)})
	c.allPassed = c.allPassed && wrong == nil
	return wrong == nil
}

// testHello starts the program and checks its answer to hello.
func (c *protocolTestRun) testHello() bool {
	loose := ""
	where := &programContext{ctx: c.ctx, federation: "check", device: c.Device, log: c.Logger,
		observe: func(f observe.Event) {
			if begun, ok := f.(ProgramStarted); ok {
				loose = begun.UnconfinedReason
			}
		}}
	c.p = newProgram("check", c.Config, where, &wire.Task{Name: "check"}, c.Layout)
	began := time.Now()
	run, err := c.p.ensureProcess(c.ctx)
	if c.run = run; err != nil {
		return c.reportFinding("hello", err, "")
	}
	confined := "sandboxed"
	if loose != "" {
		confined = "no sandbox: " + loose
	}
	return c.reportFinding("hello", nil, "trainer %q, %d rows, capabilities %q, answered after %v; %s",
		run.helloAnswer.ProgramName,
		run.helloAnswer.Rows,
		run.helloAnswer.Capabilities,
		time.Since(began).Round(time.Millisecond), confined)
}

// restartIfEnded returns the program's process. It restarts the program if it has ended.
func (c *protocolTestRun) restartIfEnded(ctx context.Context) (*programRun, error) {
	c.p.mu.Lock()
	c.p.restartAt = time.Time{}
	c.p.mu.Unlock()
	return c.p.ensureProcess(ctx)
}

// takeLocalSteps requests local steps from the program and replaces x with the result.
func (c *protocolTestRun) takeLocalSteps(ctx context.Context, x []float32, what fitRequest) (programAnswer, error) {
	run, err := c.restartIfEnded(ctx)
	if err != nil {
		return programAnswer{}, err
	}
	what.Round, what.StepSize, what.Seed, what.BatchSize = "check", c.StepSize, 7, 32
	return c.p.fit(ctx, run, x, what)
}

// testLocalSteps requests the same local steps twice and compares the results.
func (c *protocolTestRun) testLocalSteps() {
	first, second := slices.Clone(c.Base), slices.Clone(c.Base)
	what := fitRequest{FirstStep: 1, LastStep: testStepCount, BlockSteps: testStepCount}
	began := time.Now()
	a, err := c.takeLocalSteps(c.ctx, first, what)
	took := time.Since(began)
	if !c.reportFinding("fit", err, "%d steps in %v; risk changed from %.6g to %.6g", testStepCount,
		took.Round(time.Microsecond),
		valueOrZero(a.RiskBefore), valueOrZero(a.RiskAfter)) {
		return
	}
	if slices.Equal(first, c.Base) {
		c.reportFinding("fit", errors.New("no parameter has changed: the trainer must write to the file named in the "+
			"hello message"), "")
	}
	if _, err = c.takeLocalSteps(c.ctx, second, what); err == nil && !slices.Equal(first, second) {
		err = errors.New("two identical requests gave different parameters: the trainer must draw all random numbers " +
			"from the seed in the request")
	}
	c.reportFinding("fit again", err, "a repeated request gave the same parameters")
}

func valueOrZero(x *float64) float64 {
	if x == nil {
		return 0
	}
	return *x
}

// testMixing requests local steps one by one, as in a block with mixing.
func (c *protocolTestRun) testMixing() {
	if !slices.Contains(c.run.helloAnswer.Capabilities, capabilityMix) {
		return
	}
	x := slices.Clone(c.Base)
	const steps = 50
	began := time.Now()
	var err error
	for s := uint64(1); s <= steps && err == nil; s++ {
		_, err = c.takeLocalSteps(c.ctx, x, fitRequest{FirstStep: s, LastStep: s, BlockSteps: steps})
	}
	c.reportFinding("mixing", err, "%.0f single steps per second", steps/time.Since(began).Seconds())
}

// testProximalTerm compares steps with and without a large proximal weight λ. It takes two steps, because the proximal
// term is zero at the base model.
func (c *protocolTestRun) testProximalTerm() {
	if !slices.Contains(c.run.helloAnswer.Capabilities, capabilityProximal) {
		return
	}
	free, held := slices.Clone(c.Base), slices.Clone(c.Base)
	what := fitRequest{FirstStep: 1, LastStep: 2, BlockSteps: 2}
	_, err := c.takeLocalSteps(c.ctx, free, what)
	if what.Proximal = 0.5 / c.StepSize; err == nil {
		_, err = c.takeLocalSteps(c.ctx, held, what)
	}
	if err == nil && slices.Equal(free, held) {
		err = errors.New("the proximal weight λ has no effect: two steps gave the same parameters with and without it")
	}
	c.reportFinding("proximal", err, "the proximal weight λ has an effect")
}

// testInitialParameters requests the program's initial parameters.
func (c *protocolTestRun) testInitialParameters() {
	run, err := c.restartIfEnded(c.ctx)
	if err != nil || !slices.Contains(c.run.helloAnswer.Capabilities, capabilityInitial) {
		return
	}
	x, err := c.p.initialParameters(c.ctx, run)
	c.reportFinding("initial", err, "%d initial parameters", len(x))
}

// testRowCount requests the number of rows.
func (c *protocolTestRun) testRowCount() {
	run, err := c.restartIfEnded(c.ctx)
	if err != nil || !slices.Contains(run.helloAnswer.Capabilities, capabilityRows) {
		return
	}
	err = c.p.updateRowCount(c.ctx)
	c.p.mu.Lock()
	rows := c.p.rowCount
	c.p.mu.Unlock()
	c.reportFinding("rows", err, "%d", rows)
}

// testEvaluation requests an evaluation of the base model.
func (c *protocolTestRun) testEvaluation() {
	run, err := c.restartIfEnded(c.ctx)
	if err != nil || !slices.Contains(c.run.helloAnswer.Capabilities, capabilityEvaluate) {
		return
	}
	score, err := c.p.evaluate(c.ctx, run, c.Base)
	c.reportFinding("evaluate", err, "risk %.6g over %d rows", score.Risk, score.Rows)
}

// testPrediction requests predictions until the program reports no more.
func (c *protocolTestRun) testPrediction() {
	run, err := c.restartIfEnded(c.ctx)
	if err != nil || !slices.Contains(run.helloAnswer.Capabilities, capabilityPredict) {
		return
	}
	const most = 1000 // limit on the number of answers
	n, answers, more := 0, 0, true
	for ; more && err == nil && answers < most; answers++ {
		var some []predict.Forecast
		some, more, err = c.p.predict(c.ctx, run, c.Base)
		n += len(some)
	}
	if more && err == nil {
		err = fmt.Errorf("the trainer still reports more predictions after %d predictions in %d answers", n, answers)
	}
	c.reportFinding("predict", err, "%d predictions in %d answers", n, answers)
}

// testStop requests more steps than the program can finish and then sends a stop request.
func (c *protocolTestRun) testStop() {
	ctx, cancel := context.WithTimeout(c.ctx, time.Second)
	defer cancel()
	began := time.Now()
	const endless = 1 << 40
	a, err := c.takeLocalSteps(ctx, slices.Clone(c.Base), fitRequest{FirstStep: 1, LastStep: endless,
		BlockSteps: endless})
	if errors.As(err, new(*learner.DivergenceError)) {
		err = nil // Ignore the error: the parameters may diverge after many steps.
	}
	c.reportFinding("stop", err, "training stopped after %v and %d steps", time.Since(began).Round(time.Millisecond),
		a.TakenSteps)
}

// testEndOfInput closes the program's input and waits for the program to exit.
func (c *protocolTestRun) testEndOfInput() {
	defer c.p.close()
	c.p.mu.Lock()
	r := c.p.run
	c.p.mu.Unlock()
	if r == nil { // The program has ended already.
		return
	}
	began := time.Now()
	err := r.conn.closeInputAndWait()
	c.reportFinding("end", err, "trainer exited %v after its standard input was closed",
		time.Since(began).Round(time.Millisecond))
}
