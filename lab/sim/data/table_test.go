package data_test

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/lab/sim/data"
	"github.com/fedmesh/fedmesh/spec"
)

// tableSpec writes a CSV file of 60 rows from three devices of different sizes.
func tableSpec(t *testing.T) data.Spec {
	t.Helper()
	var b strings.Builder
	b.WriteString("where,a,b,y\n")
	for i := range 60 {
		device := "north"
		if i%3 == 1 {
			device = "south"
		} else if i%6 == 0 {
			device = "east"
		}
		fmt.Fprintf(&b, "%s,%v,%v,%d\n", device, math.Sin(float64(i)), math.Cos(2*float64(i)), i%4)
	}
	file := filepath.Join(t.TempDir(), "rows.csv")
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	s := data.DefaultSpec()
	s.Kind, s.File, s.Features, s.Target, s.Device, s.Partition = data.KindCSV, file, []string{"a", "b"}, "y",
		"where", data.PartitionColumn
	return s
}

func TestTableByColumn(t *testing.T) {
	s := tableSpec(t)
	s.Model.Ridge = 0.1
	p, err := data.Build[float32](s, 0, nil, true, 1)
	if err != nil {
		t.Fatal(err)
	}
	if p.Agents != 3 || !slices.Equal(p.Labels, []string{"east", "north", "south"}) ||
		!slices.Equal(p.Weights, []float64{10, 30, 20}) {
		t.Errorf("agents %v with weights %v", p.Labels, p.Weights)
	}
	load := p.Loader(nil)
	for k, label := range p.Labels {
		if n := load(k).Samples.Len(); float64(n) != p.Weights[k] {
			t.Errorf("%s has %d rows", label, n)
		}
	}
	x, y := load(0).Samples.Row(1) // the agent east has the rows 0, 6, 12, …
	if x[0] != float32(math.Sin(6)) || y != 2 {
		t.Errorf("row 1 of east is %v, %v", x, y)
	}
	if p.Objective.Minimizer == nil || p.Metrics[0].Of(p.Objective.Minimizer) <= p.Metrics[0].Of([]float64{3, 3}) {
		t.Error("the minimiser is unknown, or has a worse R² than another model")
	}
	var field *spec.FieldError
	if _, err := data.Build[float32](s, 4, nil, false, 1); !errors.As(err, &field) || field.Key != "agents" {
		t.Errorf("four agents of three devices: %v", err)
	}
}

// TestPartitions checks that each row belongs to exactly one agent. It also checks for each partition how similar the
// data of the agents are.
func TestPartitions(t *testing.T) {
	s := tableSpec(t)
	s.Model.Kind, s.Model.Classes = spec.ModelSoftmax, 4
	unlike := map[data.Partition]float64{}
	for _, partition := range []data.Partition{data.PartitionUniform, data.PartitionDirichlet, data.PartitionShards} {
		s.Partition, s.Alpha = partition, 0.3
		p, err := data.Build[float64](s, 5, nil, false, 1)
		if err != nil {
			t.Fatal(err)
		}
		var seen []float64
		load := p.Loader(nil)
		for k := range 5 {
			samples := load(k).Samples
			counts := map[float64]float64{}
			for i := range samples.Len() {
				x, y := samples.Row(i)
				seen = append(seen, x[0])
				counts[y]++
			}
			for c := range 4 {
				unlike[partition] += math.Abs(counts[float64(c)]/float64(samples.Len())-0.25) / 20
			}
		}
		slices.Sort(seen)
		if len(slices.Compact(seen)) != 60 {
			t.Errorf("%s deals %d rows of 60", partition, len(seen))
		}
	}
	if !(unlike[data.PartitionUniform] < 0.1 && unlike[data.PartitionDirichlet] > 0.15 &&
		unlike[data.PartitionShards] > 0.15) {
		t.Errorf("mean distance of an agent's class shares from those of all: %v", unlike)
	}
}

func TestBadTables(t *testing.T) {
	for key, change := range map[string]func(*data.Spec){
		"data.file":     func(s *data.Spec) { s.File = "nowhere.csv" },
		"data.target":   func(s *data.Spec) { s.Model.Kind, s.Model.Classes = spec.ModelSoftmax, 3 },
		"data.shards":   func(s *data.Spec) { s.Partition, s.Shards = data.PartitionShards, 30 },
		"data.alpha":    func(s *data.Spec) { s.Partition, s.Alpha = data.PartitionDirichlet, 1e-6 },
		"data.held_out": func(s *data.Spec) { s.HeldOut = "nowhere.csv" },
	} {
		s := tableSpec(t)
		s.Partition = data.PartitionUniform
		change(&s)
		var field *spec.FieldError
		if _, err := data.Build[float64](s, 5, nil, false, 1); !errors.As(err, &field) || field.Key != key {
			t.Errorf("want a complaint about %s, got %v", key, err)
		}
	}
}
