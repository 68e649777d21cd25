package external_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/agent/training"
	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

func mixing(w *wire.Task) {
	w.Mixing = wire.MixingSettings{IntervalSteps: 1, SnapshotRetryMillis: 1000, LateSnapshotMillis: 1000,
		SnapshotCodec: spec.CodecRaw}
}

// TestTaskChanges checks that the trainer declines a block of an outdated task, and that a block of the same task uses
// the program that is already running.
func TestTaskChanges(t *testing.T) {
	d := newDevice(t, "", time.Minute, nil)
	if _, err := d.rows.Snapshot(); err != nil {
		t.Fatal(err)
	}
	same := externalTask(nil)
	if again := d.trainer.OpenRows(data.RowQuery{ExternalTask: &same}); again != d.rows || d.ends() != 0 {
		t.Error("the same task has another program")
	}
	other := externalTask(func(w *wire.Task) { w.External.TrainedTensors = w.External.TrainedTensors[1:] })
	rows := d.trainer.OpenRows(data.RowQuery{ExternalTask: &other})
	if view, err := rows.Snapshot(); err != nil || view.Rows.Len() != 40 {
		t.Errorf("%v", err)
	}
	if _, err := d.rows.Snapshot(); err == nil {
		t.Error("the program of the earlier task goes on")
	}
	base := make([]float32, 8)
	b, err := d.trainer.NewBlock(t.Context(), 1, d.problem, task.LocalJob[float32]{BaseParameters: base, StepWeight: 1,
		Steps: 4,
		Rand:  rand.New(rand.NewPCG(1, 2))})
	if err == nil {
		err = b.TakeSteps(base, 1, 4)
	}
	if err == nil || !strings.Contains(err.Error(), "no longer needed") {
		t.Errorf("a block of the earlier task: %v", err)
	}
}

// TestRests checks that the program is stopped while the device trains another kind of model, and is restarted when the
// program's task returns.
func TestRests(t *testing.T) {
	d := newDevice(t, "says farewell", time.Minute, nil)
	if _, err := d.rows.Snapshot(); err != nil {
		t.Fatal(err)
	}
	own, err := task.Compile[float32](externalTask(func(w *wire.Task) {
		w.External, w.Features, w.TargetColumn = wire.ExternalTraining{}, []string{"u"}, "y"
	}))
	if err != nil {
		t.Fatal(err)
	}
	rows := learner.NewTableSamples[float32](1, 3, zeroRows{})
	if _, err := d.trainer.NewBlock(t.Context(), 1, own, task.LocalJob[float32]{BaseParameters: make([]float32, 1),
		Samples:    rows,
		StepWeight: 1, Steps: 4, Rand: rand.New(rand.NewPCG(1, 2))}); err != nil {
		t.Fatal(err)
	}
	d.called() // The program connects after its input has ended.
	b, _, x := d.block(t.Context(), 4)
	if err := b.TakeSteps(x, 1, 4); err != nil || d.ends() != 0 {
		t.Errorf("error %v; it is said to have ended %d times", err, d.ends())
	}
}

// zeroRows is a table in which all values are zero.
type zeroRows struct{}

func (zeroRows) ReadRows(x, y []float32, _ int) {
	clear(x)
	clear(y)
}

// TestNeverBegins checks that an agent that ends does not wait for a program that never starts, and leaves no files
// behind.
func TestNeverBegins(t *testing.T) {
	t.Setenv("RUNTIME_DIRECTORY", t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	d := newDeviceIn(ctx, t, "never begins", time.Hour, nil)
	ended := make(chan error)
	go func() {
		_, err := d.rows.Snapshot()
		ended <- err
	}()
	conn := d.called()
	cancel()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "the trainer has not started yet") {
		t.Errorf("error %v", err)
	}
	if err := d.trainer.Close(); err != nil {
		t.Error(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("the program lives on")
	}
	if left, err := os.ReadDir(os.Getenv("RUNTIME_DIRECTORY")); len(left) > 0 || err != nil {
		t.Errorf("%v stays behind, error %v", left, err)
	}
}

// TestFarewell checks that a program that is no longer needed may exit by itself after its input has ended.
func TestFarewell(t *testing.T) {
	d := newDevice(t, "says farewell", time.Minute, nil)
	if _, err := d.rows.Snapshot(); err != nil {
		t.Fatal(err)
	}
	var heard sync.WaitGroup
	heard.Go(func() { d.called() })
	if err := d.trainer.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(d.good); err != nil {
		t.Fatalf("it was killed: %v", err)
	}
	heard.Wait()
}

// TestLeavesChild checks that a program is regarded as ended even if a child process in another process group keeps the
// program's output open.
func TestLeavesChild(t *testing.T) {
	d := newDevice(t, "leaves a child", time.Hour, nil)
	b, _, x := d.block(t.Context(), 4)
	if err := b.TakeSteps(x, 1, 4); err == nil || !strings.Contains(err.Error(), "has exited") {
		t.Errorf("error %v", err)
	}
	_ = d.called().Close() // Closing the connection ends the child process.
}

// TestStopsMixing checks the case in which a stop request is sent while the program answers a step. A mixing block must
// take no step after its time is over, and its neighbours must receive nothing from it.
func TestStopsMixing(t *testing.T) {
	d := newDevice(t, "a step crosses stop", time.Minute, mixing)
	ctx, cancel := context.WithCancel(t.Context())
	b, base, x := d.block(ctx, 4)
	go func() {
		d.called()
		cancel()
	}()
	if err := b.TakeSteps(x, 1, 1); err != nil {
		t.Fatal(err)
	}
	if err := b.TakeSteps(x, 2, 2); !errors.Is(err, task.ErrStoppedMidBlock) {
		t.Errorf("a step after the end: %v", err)
	}
	if s, err := b.(training.ScoringBlock).Score(base); s != nil || err != nil {
		t.Errorf("score %v, error %v", s, err)
	}
	if d.ends() != 0 {
		t.Error("the program was ended")
	}
}

// TestEndsAtOnce checks that several goroutines can use a program concurrently while it ends in the block of one
// goroutine.
func TestEndsAtOnce(t *testing.T) {
	d := newDevice(t, "crash", time.Minute, nil)
	b, _, x := d.block(t.Context(), 4)
	over := make(chan struct{})
	var others sync.WaitGroup
	for range 4 {
		others.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
					_, _ = d.rows.Snapshot() // The race detector checks this call.
				}
			}
		})
	}
	if err := b.TakeSteps(x, 1, 4); err == nil {
		t.Error("a program that crashes has taken steps")
	}
	close(over)
	others.Wait()
}

// TestLeftovers checks that the folders of killed agents are removed, and that the folders of running agents are kept.
func TestLeftovers(t *testing.T) {
	at := t.TempDir()
	t.Setenv("RUNTIME_DIRECTORY", at)
	first := newDevice(t, "", time.Minute, nil)
	if _, err := first.rows.Snapshot(); err != nil {
		t.Fatal(err)
	}
	live, err := filepath.Glob(filepath.Join(at, "fedmesh-trainer-*"))
	if err != nil || len(live) != 1 {
		t.Fatalf("%v, error %v", live, err)
	}
	dead, another, fresh := filepath.Join(at, "fedmesh-trainer-1"), filepath.Join(at, "other"),
		filepath.Join(at, "fedmesh-trainer-2")
	old := time.Now().Add(-time.Hour)
	for _, dir := range []string{dead, another, fresh} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dead, "tensors.safetensors"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{dead, another, live[0]} {
		if err := os.Chtimes(dir, old, old); err != nil {
			t.Fatal(err)
		}
	}
	second := newDevice(t, "", time.Minute, nil)
	if _, err := second.rows.Snapshot(); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]bool{dead: false, another: true, fresh: true, live[0]: true} {
		if _, err := os.Stat(dir); (err == nil) != want {
			t.Errorf("%s: %v; it should be there: %v", dir, err, want)
		}
	}
}

// TestCrashMixing checks that after a crash of the program a mixing block continues with a new process, starting from
// the agent's parameters. If the program keeps crashing, the block must fail.
func TestCrashMixing(t *testing.T) {
	d := newDevice(t, "crash once", time.Minute, mixing)
	d.trainer.Hurry()
	b, base, x := d.block(t.Context(), 4)
	for s := range uint64(4) {
		if err := b.TakeSteps(x, s+1, s+1); err != nil {
			t.Fatal(err)
		}
	}
	if want := nearer(base[3], 0.5, 4); x[3] != want || d.ends() != 1 {
		t.Errorf("%v after %d ends, want %v after one", x[3], d.ends(), want)
	}
	d = newDevice(t, "crash", time.Minute, mixing)
	d.trainer.Hurry()
	b, _, x = d.block(t.Context(), 4)
	if err := b.TakeSteps(x, 1, 1); err == nil || d.ends() != 4 {
		t.Errorf("after %d ends: %v", d.ends(), err)
	}
}
