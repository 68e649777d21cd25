package wisdm_test

import (
	"testing"

	"github.com/fedmesh/fedmesh/lab/sim"
	"github.com/fedmesh/fedmesh/lab/wisdm"
	"github.com/fedmesh/fedmesh/spec"
)

// TestCodecs checks that training with compressed updates reaches the same accuracy as training with float32 updates.
func TestCodecs(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole experiment")
	}
	problem, err := wisdm.Problem()
	if err != nil {
		t.Fatal(err)
	}
	e := sim.Default()
	e.Runs, e.Rounds, e.Record, e.Precision, e.Participants.Count = 8, 100, 100, sim.Float32, 10
	e.LocalSteps, e.BatchSize, e.StepSize = sim.Each(5), sim.Each(20), spec.StepSize{Constant: 0.1}
	raw := 0.0
	for _, tt := range []struct {
		codec spec.Codec
		most  float64 // maximum number of bytes sent, as a fraction of the bytes that float32 updates need
	}{{spec.CodecRaw, 1}, {spec.CodecBFloat16, 0.51}, {spec.CodecInt8, 0.28}, {spec.CodecInt4, 0.16},
		{spec.CodecSigns, 0.08}, {spec.TopKCodec(0.1), 8 * 26. / (4 * 258)}, {spec.TopKCodec(0.05),
			8 * 13. / (4 * 258)}} {
		e.Codec = tt.codec
		r, err := sim.RunInstances(t.Context(), e,
			func(int) (sim.Instance[float32], error) { return sim.Instance[float32]{Problem: problem}, nil }, nil)
		if err != nil {
			t.Fatal(err)
		}
		last := func(name string) float64 { m := r.Metric(name).Mean; return m[len(m)-1] }
		accuracy, bytes := last("accuracy"), last("uplink_bytes")/(100*10*4*258)
		t.Logf("%s: accuracy %.4f, %.3f of the bytes", tt.codec, accuracy, bytes)
		if tt.codec == spec.CodecRaw {
			raw = accuracy
		}
		if accuracy < raw-0.006 || accuracy > raw+0.006 || bytes > tt.most {
			t.Errorf("%s: accuracy %.4f, %.3f of the bytes; want within 0.006 of %.4f, and %v", tt.codec, accuracy,
				bytes, raw, tt.most)
		}
	}
	if raw < 0.75 {
		t.Errorf("raw: accuracy %.4f, want 0.76", raw)
	}
}
