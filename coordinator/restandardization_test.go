package coordinator_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/coordinator/aggregation"
	"github.com/fedmesh/fedmesh/internal/testkit/memory"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// predicted returns the prediction of a stored linear model for a row in raw units, without clipping.
func predicted(t *testing.T, file []byte, row ...float64) float64 {
	t.Helper()
	tensors, meta, err := store.DecodeSafetensors(file)
	must(t, err)
	var mean, scale []float64
	must(t, json.Unmarshal([]byte(meta["mean"]), &mean))
	must(t, json.Unmarshal([]byte(meta["scale"]), &scale))
	at := func(name string, j int) float64 {
		for _, x := range tensors {
			if x.Name == name {
				return float64(math.Float32frombits(binary.LittleEndian.Uint32(x.Data[4*j:])))
			}
		}
		t.Fatalf("no tensor %s", name)
		return 0
	}
	y := at("layer0.bias", 0)
	for j, x := range row {
		y += at("layer0.weight", j) * (x - mean[j]) / scale[j]
	}
	return y*scale[len(row)] + mean[len(row)]
}

// TestRestandardize checks that a requested standardisation is computed once, at the next start, and that predictions
// for rows in raw units do not change.
func TestRestandardize(t *testing.T) { synctest.Test(t, func(t *testing.T) { restandardize(t, true) }) }

// TestRestandardizeAfterKill checks a requested standardisation if the coordinator was killed before it archived the
// last model.
func TestRestandardizeAfterKill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { restandardize(t, false) })
}

func restandardize(t *testing.T, archived bool) {
	f, first := trained(t, 4)
	_, before := model(t, f, first, 4)
	for i, a := range f.agents { // change the data of all agents
		a.stop()
		a.data = rowsOf(uint64(20+i), 50)
		a.start()
	}
	if run, err := coordinator.RequestRestandardization(f.coord.dir); err != nil || run != first {
		t.Fatalf("run %d, %v; want run %d to end", run, err, first)
	}
	if !archived {
		files, err := filepath.Glob(filepath.Join(f.coord.dir, "models", strconv.FormatUint(uint64(first), 10), "*4.*"))
		must(t, err)
		for _, file := range files {
			must(t, os.Remove(file))
		}
		if len(files) == 0 {
			t.Fatal("the model has no file")
		}
	}
	f.cfg.Round.MaxAggregations = 2
	f.coord.start()
	f.until(time.Hour, "standardised again", func() bool { return len(events[aggregation.StatisticsReady](f)) == 2 })
	f.until(time.Hour, "finished again", func() bool { return len(events[round.RunFinished](f)) == 2 })
	f.coord.stop()
	second := present(t, f).Run
	info, after := model(t, f, second, 0)
	if second <= first || info.Metadata["from"] != modelText(first, 4) {
		t.Errorf("run %d after run %d, from %q", second, first, info.Metadata["from"])
	}
	old, _ := model(t, f, first, 4)
	if info.Metadata["mean"] == old.Metadata["mean"] || info.Metadata["scale"] == old.Metadata["scale"] {
		t.Errorf("the columns are as before: %v", info.Metadata)
	}
	for _, row := range [][]float64{{15, 60, 2}, {0, 0, 0}, {35, 20, 5}} {
		if got, want := predicted(t, after, row...), predicted(t, before, row...); math.Abs(got-want) > 1e-3 {
			t.Errorf("%v: %v, before %v", row, got, want)
		}
	}
	f.cfg.Round.MaxAggregations = 3
	f.coord.start()
	f.until(time.Hour, "finished once more", func() bool { return len(events[round.RunFinished](f)) == 3 })
	f.coord.stop()
	if r := present(t, f); r.Run != second || r.Plan.BaseModelVersion != 3 {
		t.Errorf("the request was obeyed again: run %d at version %d, want %d at 3", r.Run, r.Plan.BaseModelVersion,
			second)
	}
}

// TestRestandardizeAndCrash checks that no data are lost if the coordinator crashes in the new statistics round.
func TestRestandardizeAndCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, first := trained(t, 2)
		if _, err := coordinator.RequestRestandardization(f.coord.dir); err != nil {
			t.Fatal(err)
		}
		crashed := false
		f.coord.moment = func(event any) {
			if o, ok := event.(round.RoundOpened); ok && o.Kind == wire.KindStatistics && !crashed {
				crashed = true
				f.coord.kill()
			}
		}
		f.coord.start()
		f.until(time.Hour, "crashed", func() bool { return f.isDead(f.coord.life) })
		<-f.coord.life.done // wait until the folder of the killed process is copied
		if _, err := coordinator.RequestRestandardization(f.coord.dir); err == nil {
			t.Error("asked for in the middle of a statistics round, another one is promised")
		}
		f.coord.again()
		f.until(time.Hour, "finished again", func() bool { return len(events[round.RunFinished](f)) == 2 })
		f.coord.stop()
		runs := f.runs()
		if info, _ := model(t, f, runs[len(runs)-1], 0); len(runs) != 2 ||
			info.Metadata["from"] != modelText(first, 2) {
			t.Errorf("runs %v, the last from %q", runs, info.Metadata["from"])
		}
	})
}

// TestRestandardizeUnreadable checks that the run does not restart from an initial model if the last model is
// temporarily unreadable. Instead, the statistics round is repeated.
func TestRestandardizeUnreadable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, first := trained(t, 2)
		before, _ := model(t, f, first, 2)
		if _, err := coordinator.RequestRestandardization(f.coord.dir); err != nil {
			t.Fatal(err)
		}
		path := f.coord.path(filepath.Join("models", strconv.FormatUint(uint64(first), 10),
			"model-00000002.safetensors"))
		unreadable := make(chan func(), 1)
		f.coord.moment = func(event any) {
			if o, ok := event.(round.RoundOpened); ok && o.Kind == wire.KindStatistics {
				f.coord.moment = nil
				unreadable <- obstruct(t, path)
			}
		}
		f.coord.start()
		undo := <-unreadable
		wait(10 * time.Second)
		undo()
		f.until(time.Hour, "finished again", func() bool { return len(events[round.RunFinished](f)) == 2 })
		f.coord.stop()
		// the agents' data have not changed
		if after, _ := model(t, f, present(t, f).Run, 0); after.Digest != before.Digest {
			t.Errorf("the run begins with %x, want %x of model %s", after.Digest[:4], before.Digest[:4],
				modelText(first, 2))
		}
	})
}

func TestRestandardizeRefused(t *testing.T) {
	if _, err := coordinator.RequestRestandardization(t.TempDir()); err == nil {
		t.Error("an empty folder has a run to end")
	}
	synctest.Test(t, func(t *testing.T) { // the task now uses raw units: the run continues
		f, first := trained(t, 1)
		_, err := coordinator.RequestRestandardization(f.coord.dir)
		must(t, err)
		f.cfg.Standardize = false
		must(t, begin(t, f))
		if r := present(t, f); r.Run != first {
			t.Errorf("run %d", r.Run)
		}
	})
}

// yard returns data of a device in a yard: latitude and longitude within 80 m, a meter in Wh that counts up to 12,345
// kWh, and a target that is linear in metres plus noise.
func yard(seed uint64, n int) table {
	rng := rand.New(rand.NewPCG(seed, 20))
	b := []byte("lat,lon,meter,y\n")
	for range n {
		north, east, used := 2*rng.Float64()-1, 2*rng.Float64()-1, rng.Float64()
		b = fmt.Appendf(b, "%.7f,%.7f,%.0f,%.4f\n", 52.52+3.5e-4*north, 13.405+5.8e-4*east, 12_345_000+600*used,
			4*north+2*east+3*used+0.1*rng.NormFloat64())
	}
	return table(b)
}

// TestColumnsFarFromZero checks that columns whose mean exceeds 30,000 times their spread are scaled, and that the
// model learns from them. A column that is constant on all devices is reported.
func TestColumnsFarFromZero(t *testing.T) {
	for _, devices := range []int{3, 6} {
		synctest.Test(t, func(t *testing.T) {
			f := newFederation(t, devices, memory.Options{})
			f.held(yard(99, 200))
			f.cfg.Task.Features, f.cfg.Task.TargetColumn = []string{"lat", "lon", "meter"}, "y"
			f.cfg.Task.Model.Ridge, f.cfg.Round.MaxAggregations = 0, 40
			for i, a := range f.agents {
				a.data = yard(uint64(i), 100)
			}
			f.start()
			f.finished(10 * time.Hour)
			models := events[aggregation.ModelReady](f)
			if r2 := models[len(models)-1].HeldOutScore.R2; !(r2 > 0.99) {
				t.Errorf("%d devices: R² %v", devices, r2)
			}
			if named := events[aggregation.StatisticsReady](f)[0].ConstantColumns; len(named) > 0 {
				t.Errorf("%d devices: constant: %v", devices, named)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, 3, memory.Options{})
		f.cfg.Round.MaxAggregations = 1
		f.agents[1].data = table("warm,wet,wind,power\n" + strings.Repeat("1,2,2,3\n4,5,2,3\n", 9))
		f.agents[0].data = table("warm,wet,wind,power\n" + strings.Repeat("1,6,2,3\n4,5,2,3\n", 9))
		f.agents[2].data = f.agents[0].data
		f.start()
		f.finished(10 * time.Hour)
		if named := events[aggregation.StatisticsReady](f)[0].ConstantColumns; !slices.Equal(named, []string{"wind",
			"power"}) {
			t.Errorf("constant: %v", named)
		}
	})
}
