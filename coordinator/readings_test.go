package coordinator_test

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/agent/taskdata"
	"github.com/fedmesh/fedmesh/coordinator/aggregation"
	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/data/sources"
	"github.com/fedmesh/fedmesh/internal/testkit/memory"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// readingsOf returns a file of readings over the given number of days, three per hour, a tenth of which is missing. The
// load depends on the hour of the day and the temperature an hour earlier.
func readingsOf(t *testing.T, seed uint64, days int) data.Config {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 8))
	b := []byte("time,warm,load\n")
	warm, before := 15.0, 15.0
	for i := range 72 * days {
		if i%3 == 0 {
			before, warm = warm, 15+0.8*(warm-15)+rng.NormFloat64()
		}
		hour := math.Ceil(float64(i+1) / 3) // grid point of the reading
		load := 900 + 300*math.Sin(2*math.Pi*hour/24) + 40*(before-15) + rng.NormFloat64()
		if rng.IntN(10) > 0 {
			b = fmt.Appendf(b, "%d,%.3f,%.3f\n", 1772323200+1200*i+600, warm, load)
		}
	}
	path := filepath.Join(t.TempDir(), "readings.csv")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return data.Config{CSVPath: path, TimeColumn: "time", MissingValuePolicy: grid.FillLast,
		MaxLastValueAge: 2 * time.Hour}
}

// TestReadings checks training on rows that agents build from sensor readings. The coordinator scores the models on
// rows that it builds from readings in the same way.
func TestReadings(t *testing.T) {
	for _, target := range []string{"load", "load in 1h"} {
		synctest.Test(t, func(t *testing.T) {
			f := newFederation(t, 3, memory.Options{})
			recipe := spec.RowRecipe{Grid: spec.TimeGrid{Step: time.Hour}, Inputs: []spec.InputSeries{
				{Name: "warm", Unit: "°C", ValidRange: []float64{-40, 60}}, {Name: "load", Unit: "W"}}}.WithDefaults()
			f.cfg.Task.Recipe, f.cfg.Task.TargetColumn = recipe, target
			f.cfg.Task.Features = recipe.ExpandFeatures([]string{"warm lag 1h", "hour"})
			if target != "load" {
				f.cfg.Task.Features = recipe.ExpandFeatures([]string{"warm", "hour", "load lag 23h"})
			}
			f.cfg.Round.MaxAggregations, f.cfg.Task.Training.StepSize = 40, 0.1
			for i, a := range f.agents {
				a.file = readingsOf(t, uint64(i), 6+2*i)
			}
			c := readingsOf(t, 99, 10)
			held, err := sources.Open(&c)
			if err != nil {
				t.Fatal(err)
			}
			f.cfg.HeldOutSource = held
			f.start()
			f.finished(time.Hour)
			models := events[aggregation.ModelReady](f)
			if s := models[len(models)-1].HeldOutScore; s.R2 < 0.95 || s.Samples < 200 {
				t.Errorf("%s: score %+v", target, s)
			}
			if s := events[aggregation.StatisticsReady](f); len(s) != 1 || s[0].Rows < 24*(6+8+10)-3*27 {
				t.Errorf("%s: statistics %+v", target, s)
			}
		})
	}
}

// TestReadingsThatAreWrong checks that an agent with mostly invalid readings declines and reports the column, the
// reason and the numbers. It participates again once enough readings are valid.
func TestReadingsThatAreWrong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, 3, memory.Options{})
		recipe := spec.RowRecipe{Grid: spec.TimeGrid{Step: time.Hour}, Inputs: []spec.InputSeries{
			{Name: "warm", ValidRange: []float64{-40, 60}}, {Name: "load", Unit: "W"}}}.WithDefaults()
		f.cfg.Task.Recipe, f.cfg.Task.TargetColumn, f.cfg.Task.Features = recipe, "load in 1h", []string{"warm", "load"}
		f.cfg.Round.MaxAggregations, f.cfg.Task.Training.StepSize = 0, 0.1
		f.cfg.Round.Participants, f.cfg.Round.Quorum, f.cfg.Round.Gather.TargetAgents, f.cfg.Round.Gather.MinAgents = 2,
			2, 2, 2
		for i, a := range f.agents {
			a.file = readingsOf(t, uint64(i), 6)
		}
		path := f.agents[2].file.CSVPath
		good, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		half := bytes.LastIndexByte(good[:len(good)/2], '\n')
		wrong := regexp.MustCompile(`(?m)^(\d+),[0-9.]+,`).ReplaceAll(good[half:], []byte("$1,999,"))
		wrong = append(good[:half:half], wrong...)
		if err := os.WriteFile(path, wrong, 0o600); err != nil {
			t.Fatal(err)
		}
		f.start()
		var told []round.AgentUnfit
		f.until(time.Hour, "the agent is unfit", func() bool {
			told = events[round.AgentUnfit](f)
			return len(told) > 0
		})
		want := wire.DataProblem{Column: "warm", Reason: "out_of_range"}
		m := told[0].DataProblem
		if where, n := m.ExampleLocation, m.UnusableValues; told[0].Agent != "a2" ||
			told[0].Reason != wire.DeclineBadData ||
			m.Column != want.Column || m.Reason != want.Reason || !strings.Contains(where, ": line ") || n < 150 ||
			m.TotalValues < 2*n-50 || m.TotalValues > 2*n+50 {
			t.Errorf("told %+v", told[0])
		}
		f.until(time.Hour, "its metrics say so", func() bool {
			all := events[taskdata.SourceReportReceived](f, "a2")
			return len(all) > 0 && all[len(all)-1].LargestWrongShare > 0.4
		})
		if err := os.WriteFile(path, good, 0o600); err != nil {
			t.Fatal(err)
		}
		f.until(time.Hour, "it is mended", func() bool {
			for _, c := range events[round.AgentEligible](f) {
				if c.Agent == "a2" {
					return true
				}
			}
			return false
		})
		f.until(time.Hour, "its metrics say that, too", func() bool {
			all := events[taskdata.SourceReportReceived](f, "a2")
			return all[len(all)-1].LargestWrongShare < 0.01
		})
	})
}
