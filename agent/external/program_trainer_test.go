package external_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/agent/evaluation"
	"github.com/fedmesh/fedmesh/agent/external"
	forecast "github.com/fedmesh/fedmesh/agent/predict"
	"github.com/fedmesh/fedmesh/agent/training"
	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// ProgramTrainer implements these three interfaces.
var (
	_ training.OpaqueTrainer       = (*external.ProgramTrainer)(nil)
	_ evaluation.EvaluatingProgram = (*external.ProgramTrainer)(nil)
	_ forecast.PredictingProgram   = (*external.ProgramTrainer)(nil)
)

const (
	modeVariable = "EXTERNAL_TEST_MODE"
	goodVariable = "EXTERNAL_TEST_GOOD"
	callVariable = "EXTERNAL_TEST_CALL"
)

// lockedBuffer is a buffer that is safe for concurrent use.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// Len returns the number of bytes written.
func (l *lockedBuffer) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Len()
}

// TestMain runs the simulated external program if an environment variable requests a mode. Otherwise it runs the tests.
func TestMain(m *testing.M) {
	if mode, ok := os.LookupEnv(modeVariable); ok {
		play(mode, os.Stdin, os.Stdout)
		return
	}
	os.Exit(m.Run())
}

// device is a device with the external program "nearer", which simulates faults in some modes.
type device struct {
	testing.TB
	trainer *external.ProgramTrainer
	problem *task.CompiledTask[float32]
	rows    data.QueriedRows
	line    net.Listener
	good    string // path of a file; the program simulates no fault if the file exists
	log     lockedBuffer

	mu     sync.Mutex
	events []observe.Event
}

// externalTask returns a task whose model has eight parameters in three tensors.
func externalTask(change func(t *wire.Task)) wire.Task {
	t := wire.Task{Name: "a task", MinSamples: 1, Model: wire.ModelSpec{Outputs: 1, Activation: spec.ActivationTanh,
		Risk: spec.LossSquared},
		Training: wire.TrainingSettings{ExchangeKind: spec.ExchangeParameters, StepSize: 0.5,
			StepTimeBudgetMillis: 3000, MinLocalSteps: 1,
			MaxLocalSteps: 4, GradientNoise: spec.GradientNoise{Law: spec.NoiseNone}},
		External: wire.ExternalTraining{TrainerName: "nearer", TrainedTensors: wire.TensorSchema{
			{Name: "z", DType: wire.Float32, Shape: []uint32{2, 2}}, {Name: "s", DType: wire.Float32},
			{Name: "a", DType: wire.Float32, Shape: []uint32{3}}}}}
	if change != nil {
		change(&t)
	}
	return t
}

func newDevice(t testing.TB, mode string, timeout time.Duration, change func(t *wire.Task)) *device {
	t.Helper()
	return newDeviceIn(t.Context(), t, mode, timeout, change)
}

// newDeviceIn is like newDevice, but for an agent that runs until ctx ends.
func newDeviceIn(ctx context.Context, t testing.TB, mode string, timeout time.Duration,
	change func(t *wire.Task)) *device {
	t.Helper()
	line, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = line.Close() })
	d := &device{TB: t, line: line, good: filepath.Join(t.TempDir(), "good")}
	d.begin(ctx, external.Config{Command: []string{os.Args[0]}, Env: []string{modeVariable + "=" + mode,
		goodVariable + "=" + d.good, callVariable + "=" + line.Addr().String()}, SilenceTimeout: timeout,
		Dir:           t.TempDir(),
		AllowsNetwork: mode != "network"}, change)
	return d
}

// begin creates a trainer that uses the program.
func (d *device) begin(ctx context.Context, cfg external.Config, change func(t *wire.Task)) {
	d.Helper()
	d.trainer = external.New(ctx, training.LocalTrainer{}, external.NoRowsSource{},
		map[string]external.Config{"nearer": cfg},
		"plant", "pump-7", slog.New(slog.NewTextHandler(&d.log, nil)), func(f observe.Event) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.events = append(d.events, f)
		})
	var err error
	if d.problem, err = task.Compile[float32](externalTask(change)); err != nil {
		d.Fatal(err)
	}
	d.rows = d.trainer.OpenRows(data.RowQuery{ExternalTask: &d.problem.Task})
	d.Cleanup(func() {
		if err := d.trainer.Close(); err != nil {
			d.Error(err)
		}
	})
}

// ends returns the number of ProgramEnded events that were reported.
func (d *device) ends() (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, f := range d.events {
		if _, ended := f.(external.ProgramEnded); ended {
			n++
		}
	}
	return n
}

// block returns a block with the given number of steps. The base parameters of the block are 0, 0.1, 0.2, ….
func (d *device) block(ctx context.Context, steps int) (b training.LocalStepBlock, base, x []float32) {
	d.Helper()
	base, x = make([]float32, 8), make([]float32, 8)
	for i := range base {
		base[i] = float32(i) / 10
	}
	copy(x, base)
	b, err := d.trainer.NewBlock(ctx, 1, d.problem, task.LocalJob[float32]{BaseParameters: base, StepWeight: 1,
		Steps: steps,
		Rand:  rand.New(rand.NewPCG(1, 2))})
	if err != nil {
		d.Fatal(err)
	}
	return b, base, x
}

// nearer returns the value of the parameter x after the given number of steps with the step size mu.
func nearer(x float32, mu float64, steps int) float32 {
	for range steps {
		x += float32(mu) * (1 - x)
	}
	return x
}

// TestFit checks that the update contains the parameters that the program has computed, tensor by tensor, and the
// number of rows that the program reports.
func TestFit(t *testing.T) {
	for name, tt := range map[string]struct {
		normalize bool
		mu        float64
	}{"": {false, 0.5}, "normalized": {true, 0.125}} {
		d := newDevice(t, "slow", time.Minute, func(w *wire.Task) { w.Training.NormalizesStepSize = tt.normalize })
		view, err := d.rows.Snapshot()
		if err != nil || view.Rows.Len() != 40 || view.Version != 1 || d.rows.Changed() {
			t.Fatalf("%s: %d rows of version %d, error %v", name, view.Rows.Len(), view.Version, err)
		}
		b, base, x := d.block(t.Context(), 4)
		if err := b.TakeSteps(x, 1, 4); err != nil {
			t.Fatal(err)
		}
		out, err := b.OutcomeFromBase(base, x)
		if err != nil || out.StepsTaken != 4 || out.RiskBefore != 2 || out.RiskAfter != 1 {
			t.Errorf("%s: %+v, error %v", name, out, err)
		}
		if s, err := b.(training.ScoringBlock).Score(base); err != nil || s.Risk != 0.5 || s.Samples != 10 ||
			s.Accuracy != 0.75 || s.R2 == s.R2 {
			t.Errorf("%s: score %+v, error %v", name, s, err)
		}
		f, err := d.trainer.Evaluate(t.Context(), d.problem, base)
		if err != nil || f.Risk != 0.5 || f.Rows != 10 || len(f.OtherMetricByName) != 1 ||
			f.OtherMetricByName["accuracy"] != 0.75 {
			t.Errorf("%s: figures %+v, error %v", name, f, err)
		}
		for i, delta := range out.UpdateVector {
			if want := nearer(base[i], tt.mu, 4) - base[i]; delta != want {
				t.Errorf("%s: parameter %d has changed by %v, want %v", name, i, delta, want)
			}
		}
	}
}

// TestOwn checks that the device's personal tensors start with the program's values, are not sent to the coordinator,
// and are trained together with the other tensors.
func TestOwn(t *testing.T) {
	own := func(w *wire.Task) { w.Personal.PersonalTensors = []string{"a", "s"} }
	d := newDevice(t, "", time.Minute, own)
	begins, err := d.trainer.InitialPersonalParameters(t.Context(), d.problem)
	// The tensors in the file are sorted by name: a, s, z.
	if want := []float32{4, 1, 2, 3}; err != nil || !slices.Equal(begins, want) {
		t.Fatalf("%v, error %v; want %v", begins, err, want)
	}
	base := d.problem.AllParameters([]float32{10, 20, 30, 40}, begins)
	b, err := d.trainer.NewBlock(t.Context(), 1, d.problem, task.LocalJob[float32]{BaseParameters: base, StepWeight: 1,
		Steps: 1,
		Rand:  rand.New(rand.NewPCG(1, 2))})
	if err != nil {
		t.Fatal(err)
	}
	x := slices.Clone(base)
	if err := b.TakeSteps(x, 1, 1); err != nil {
		t.Fatal(err)
	}
	out, err := b.OutcomeFromBase(base, x)
	if err != nil || !slices.Equal(out.OwnParameters, []float32{2.5, 1, 1.5, 2}) ||
		!slices.Equal(out.UpdateVector, []float32{-4.5, -9.5, -14.5, -19.5}) {
		t.Errorf("own %v, update %v, error %v", out.OwnParameters, out.UpdateVector, err)
	}
	for mode, want := range map[string]string{"no beginning": "no weights", "cannot mix": `do not include "initial"`} {
		d := newDevice(t, mode, time.Minute, own)
		if _, err := d.trainer.InitialPersonalParameters(t.Context(), d.problem); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", mode, err, want)
		}
	}
}

// TestMixes checks that neighbours may change the parameters between two steps of a block. It also checks that an agent
// that takes two of four steps doubles the size of each step.
func TestMixes(t *testing.T) {
	d := newDevice(t, "", time.Minute, func(w *wire.Task) {
		mixing(w)
		w.Training.StepSize = 0.25
	})
	for _, afford := range []int{4, 2} {
		b, base, x := d.block(t.Context(), afford)
		want := nearer(base[3], 0.25*4/float64(afford), afford)
		for s := range uint64(6) { // Take steps beyond the end of the block, as in endless blocks.
			if s == 4 {
				out, err := b.OutcomeFromBase(base, x)
				if err != nil || out.StepsTaken != afford || out.UpdateVector[3] != want-base[3] ||
					out.RiskBefore != 2 ||
					out.RiskAfter != 1 {
					t.Errorf("%d of 4: %+v, error %v; want %v", afford, out, err, want-base[3])
				}
			}
			if err := b.TakeSteps(x, s+1, s+1); err != nil {
				t.Fatal(err)
			}
			x[0] += 1 // Simulate a change by a neighbour.
		}
	}
}

// TestWrong checks that a block fails with the correct reason if the program has a fault, and that the next block
// succeeds without the fault.
func TestWrong(t *testing.T) {
	for mode, want := range map[string]string{
		"crash": "has exited", "garbage": `wrote an invalid frame "Epoch 1/10: loss 0.3\n"`,
		"a long line": "more than 65536 bytes",
		"half a line": "exited before it completed the line", "another answer": `for request 2, but frame`,
		"failed":         "the GPU is away",
		"too many steps": "took 5 local steps, but 4 were requested", "rows gone": "-1 rows", "no risk": "risk_after",
		"NaN": "not a finite number", "another header": "the header of tensors.safetensors has changed",
		"another length":      "has 10 bytes instead of 208",
		"a pipe in its place": "no longer a regular file", "a link in its place": "tensors.safetensors",
		"no file": "no such file",
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			d := newDevice(t, mode, time.Minute, nil)
			b, _, x := d.block(t.Context(), 4)
			err := b.TakeSteps(x, 1, 4)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want %q", err, want)
			}
			if diverged := errors.As(err, new(*learner.DivergenceError)); diverged != (mode == "NaN") {
				t.Errorf("%v: diverged is %v", err, diverged)
			}
			if goesOn := d.ends() == 0; goesOn != (mode == "failed") {
				t.Errorf("the program has exited %d times", d.ends())
			}
			if err := os.WriteFile(d.good, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			d.trainer.Hurry()
			b, base, x := d.block(t.Context(), 4)
			if err := b.TakeSteps(x, 1, 4); err != nil || x[1] != nearer(base[1], 0.5, 4) {
				t.Errorf("the next block: %v, parameters %v", err, x)
			}
		})
	}
}

// TestRefused checks that a device has no rows and reports the reason if its program either does not support the task
// or does not start.
func TestRefused(t *testing.T) {
	for mode, want := range map[string]string{
		"no rows": "0 rows", "another version": "uses protocol version 2", "cannot mix": `do not include "mixing"`,
		"not yet": "the camera is away", "no hello": "exit status 3",
	} {
		d := newDevice(t, mode, time.Minute, mixing)
		_, err := d.rows.Snapshot()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", mode, err, want)
		}
		if _, again := d.rows.Snapshot(); err == nil || again == nil || again.Error() != err.Error() || d.ends() != 1 {
			t.Errorf("%s: at once: %v; want the same, of the one that has ended", mode, again)
		}
	}
	d := newDevice(t, "", time.Minute, func(w *wire.Task) { w.External.TrainerName = "farther" })
	if _, err := d.rows.Snapshot(); err == nil || !strings.Contains(err.Error(), "add trainers") {
		t.Errorf("a trainer that is not there: %v", err)
	}
	if _, err := (external.NoRowsSource{}).OpenRows(data.RowQuery{Target: "y"}).Snapshot(); err == nil {
		t.Error("a device without data has rows of a task of another kind")
	}
}

// TestStops checks that a program receives a stop request when the time of a block is over, and that the program's
// partial result is used.
func TestStops(t *testing.T) {
	d := newDevice(t, "stops", time.Minute, nil)
	ctx, cancel := context.WithCancel(t.Context())
	b, base, x := d.block(ctx, 4)
	cancel()
	if err := b.TakeSteps(x, 1, 4); err != nil {
		t.Fatal(err)
	}
	if _, err := b.OutcomeFromBase(base, x); !errors.Is(err, task.ErrNoSteps) {
		t.Errorf("a block that ends before its first step: %v", err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	b, base, x = d.block(ctx, 4)
	go func() {
		d.called()
		cancel()
	}()
	if err := b.TakeSteps(x, 1, 4); err != nil {
		t.Fatal(err)
	}
	out, err := b.OutcomeFromBase(base, x)
	if want := 2 * (0.25 - base[2]); err != nil || out.StepsTaken != 2 ||
		math.Abs(float64(out.UpdateVector[2]-want)) > 1e-6 {
		t.Errorf("%+v, error %v; want %v", out, err, want)
	}
}

// called waits until the program or its child process connects to the test.
func (d *device) called() net.Conn {
	conn, err := d.line.Accept()
	if err != nil {
		d.Error(err) // Do not call Fatal, since the caller may be another goroutine.
	}
	return conn
}

// TestChildren checks that killing a program also kills its child processes.
func TestChildren(t *testing.T) { takesChildren(t, "children") }

func takesChildren(t *testing.T, mode string) {
	d := newDevice(t, mode, time.Minute, nil)
	ctx, cancel := context.WithCancel(t.Context())
	b, _, x := d.block(ctx, 4)
	ended := make(chan error)
	go func() { ended <- b.TakeSteps(x, 1, 4) }()
	conn := d.called()
	cancel()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "invalid frame") {
		t.Errorf("error %v", err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the child lives on: %v", err)
	}
}

// TestNoise checks that the standard error of a program is logged up to a limit, and that writing to it never blocks
// the program.
func TestNoise(t *testing.T) {
	d := newDevice(t, "noise", time.Minute, nil)
	b, _, x := d.block(t.Context(), 4)
	if err := b.TakeSteps(x, 1, 4); err != nil {
		t.Fatal(err)
	}
	if n := d.log.Len(); n < 1000 || n > 64<<10 {
		t.Errorf("%d bytes are logged", n)
	}
}
