package external_test

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/agent/external"
	"github.com/fedmesh/fedmesh/agent/training"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

const (
	roundDevices = 4
	roundSteps   = 10
	roundBatch   = 32
	roundWidth   = 1000 // width of the layer, which has roundWidth² parameters
)

// BenchmarkRound measures the local work of a round with a million parameters on four devices of one machine. It
// compares the built-in learner (10 steps of 32 rows, and scoring) with programs in Go and Python that do nothing.
// Without neighbours, the agent sends one request for local steps per block, so the times of the programs are pure
// overhead.
func BenchmarkRound(b *testing.B) {
	b.Run("own", func(b *testing.B) {
		w := externalTask(func(t *wire.Task) {
			t.External, t.TargetColumn, t.Model.HiddenUnits = wire.ExternalTraining{}, "y", []uint32{roundWidth}
			t.Training.BatchSize, t.Training.MaxLocalSteps = roundBatch, roundSteps
			t.Training.StepSize = 1e-6
			for i := range roundWidth - 1 {
				t.Features = append(t.Features, "x"+string(rune('0'+i%10))+string(rune('a'+i/10)))
			}
		})
		p, err := task.Compile[float32](w)
		if err != nil {
			b.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(1, 2))
		x, y := make([]float32, (roundWidth-1)*roundBatch), make([]float32, roundBatch)
		for i := range x {
			x[i] = float32(rng.NormFloat64())
		}
		rows := learner.NewSamples(roundWidth-1, x, y)
		var of [roundDevices]part
		for i := range of {
			p, err := task.Compile[float32](w)
			if err != nil {
				b.Fatal(err)
			}
			of[i] = part{training.LocalTrainer{}, p, rows}
		}
		rounds(b, of, p.Model.Architecture().ParameterCount())
	})
	programs(b, "program", external.Config{Command: []string{os.Args[0]}, Env: []string{modeVariable + "=idle"}})
	python, err := exec.LookPath("/usr/bin/python3")
	if err != nil || exec.Command(python, "-c", "import numpy").Run() != nil {
		return // This case is measured only if numpy is installed.
	}
	source, err := filepath.Abs(filepath.Join("..", "..", "packaging", "python", "src"))
	if err != nil {
		b.Fatal(err)
	}
	folder := b.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "idle.py"), []byte(idle), 0o600); err != nil {
		b.Fatal(err)
	}
	programs(b, "python", external.Config{Command: []string{python, "-m", "fedmesh.trainer", "idle:Idle"}, Dir: folder,
		Env: []string{"PYTHONPATH=" + source}})
}

// idle is a trainer in Python whose local steps do nothing.
const idle = `
from fedmesh.trainer import Evaluated, Trainer

class Idle(Trainer):
    def rows(self):
        return 40

    def risk(self, params):
        return 1.0

    def fit(self, params, job):
        for step in job:
            pass

    def evaluate(self, params):
        return Evaluated(10, 0.5)
`

// part is the part of one device in a round.
type part struct {
	by   training.Trainer
	p    *task.CompiledTask[float32]
	rows *learner.Samples[float32]
}

// programs measures rounds of devices that train with an external program.
func programs(b *testing.B, name string, cfg external.Config) {
	b.Run(name, func(b *testing.B) {
		cfg.SilenceTimeout, cfg.AllowsNetwork = time.Minute, true
		var of [roundDevices]part
		for i := range of {
			d := &device{TB: b}
			d.begin(b.Context(), cfg, func(t *wire.Task) {
				t.External.TrainedTensors = wire.TensorSchema{{Name: "w", DType: wire.Float32,
					Shape: []uint32{roundWidth, roundWidth}}}
				t.Training.MaxLocalSteps = roundSteps
			})
			if _, err := d.rows.Snapshot(); err != nil {
				b.Fatal(err)
			}
			of[i] = part{by: d.trainer, p: d.problem}
		}
		rounds(b, of, roundWidth*roundWidth)
	})
}

// rounds measures a round in which all devices train concurrently, and reports the shortest of several repetitions.
func rounds(b *testing.B, of [roundDevices]part, params int) {
	base := make([]float32, params)
	rng := rand.New(rand.NewPCG(3, 4))
	for i := range base {
		base[i] = float32(rng.NormFloat64() / 100)
	}
	best := time.Hour // The shortest time is the best estimate, since other load only makes rounds longer.
	for b.Loop() {
		began := time.Now()
		var all sync.WaitGroup
		for _, d := range of {
			all.Go(func() {
				if err := d.take(b, base); err != nil {
					b.Error(err)
				}
			})
		}
		all.Wait()
		best = min(best, time.Since(began))
	}
	b.ReportMetric(float64(best)/float64(time.Millisecond), "ms/best")
}

func (d *part) take(b *testing.B, base []float32) error {
	x := make([]float32, len(base))
	copy(x, base)
	block, err := d.by.NewBlock(b.Context(), 1, d.p, task.LocalJob[float32]{BaseParameters: base, Samples: d.rows,
		StepWeight: 1,
		Steps:      roundSteps, Rand: rand.New(rand.NewPCG(5, 6))})
	if err == nil {
		err = block.TakeSteps(x, 1, roundSteps)
	}
	if err != nil {
		return err
	}
	if s, scores := block.(training.ScoringBlock); scores {
		if _, err := s.Score(base); err != nil {
			return err
		}
	} else if m, err := learner.NewModel[float32](d.p.Model.Architecture()); err != nil {
		return err
	} else {
		m.Score(base, d.rows)
	}
	_, err = block.OutcomeFromBase(base, x)
	return err
}
