package external_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// BenchmarkStep measures the overhead of a local step by an external program that does no work in the step.
func BenchmarkStep(b *testing.B) {
	for _, d := range []uint32{1000, 100_000, 1_000_000} {
		b.Run(fmt.Sprint("d=", d), func(b *testing.B) {
			device := newDevice(b, "idle", time.Minute, func(t *wire.Task) {
				t.External.TrainedTensors = wire.TensorSchema{{Name: "w", DType: wire.Float32, Shape: []uint32{d}}}
				t.Mixing = wire.MixingSettings{IntervalSteps: 1, SnapshotRetryMillis: 1000, LateSnapshotMillis: 1000,
					SnapshotCodec: spec.CodecRaw}
				t.Training.MaxLocalSteps = 1 << 30
			})
			x := make([]float32, d)
			block, err := device.trainer.NewBlock(b.Context(), 1, device.problem,
				task.LocalJob[float32]{BaseParameters: x,
					StepWeight: 1,
					Steps:      1 << 30, Rand: rand.New(rand.NewPCG(1, 2))})
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(4 * int64(d))
			s := uint64(0)
			for b.Loop() {
				s++
				if err := block.TakeSteps(x, s, s); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
