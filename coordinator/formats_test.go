package coordinator_test

import (
	"encoding/hex"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/coordinator/aggregation"
	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// formats lists the files of the state folder as patterns, with a function that changes the file to an unknown format
// and the expected behaviour. Every file of the folder must match a pattern.
var formats = []struct {
	pattern string
	renew   func(t *testing.T, path string)
	want    promise
	says    string // expected error if the coordinator does not start
}{
	{"run.[ab]", raiseVersion, undecide,
		"run has format version 4, but this program reads version 3, so a different program version wrote it"},
	{"task.[ab]", raiseVersion, undecide,
		"task has format version 3, but this program reads version 2, so a different program version wrote it"},
	{"seals.[ab]", raiseVersion, goesOn, ""}, // new encryption keys are generated
	{"model.[ab]", raiseVersion, goesOn, ""}, // the model is restored from the archive
	{"models/*/model-0000000[0-3].record", raiseVersion, goesOn, ""},
	{"models/*/model-00000004.record", raiseVersion, goesOn, ""}, // the hash in the journal verifies the model file
	{"models/*/model-0000000[0-3].safetensors", raiseModelFormat, goesOn, ""},
	{"models/*/model-00000004.safetensors", raiseModelFormat, goesOn, ""}, // the model is restored from its slot
	{"model*/*/model-00000004.safetensors", withoutSlot, undecide,
		"model-00000004.safetensors has format version 9, but this program reads version 1, so a different program " +
			"version wrote it"},
	// The agents are asked to upload the lost updates again.
	{"spool/*/*.log", func(t *testing.T, path string) { replace(t, path, "FMU1", "FMU9") }, goesOn, ""},
	{"history.jsonl", func(t *testing.T, path string) { replace(t, path, `"kind":`, `"later":{"x":1},"kind":`) },
		goesOn, ""},
}

// withoutSlot calls raiseModelFormat and also damages the slot files that contain the same model.
func withoutSlot(t *testing.T, path string) {
	raiseModelFormat(t, path)
	for _, name := range []string{"model.a", "model.b"} {
		put(t, filepath.Join(filepath.Dir(path), "..", "..", name), []byte("rubbish"))
	}
}

// listedFile returns the entry of runs.Files for a path, without the slot suffix.
func listedFile(t *testing.T, path string) store.StateFile {
	t.Helper()
	i := slices.IndexFunc(runs.Files, func(f *store.StateFile) bool { return f.Name == filepath.Base(path) })
	if i < 0 {
		t.Fatalf("%s is not in runs.Files", path)
	}
	return *runs.Files[i]
}

func raiseVersion(t *testing.T, path string) {
	if base, is := strings.CutSuffix(path, ".a"); is { // change the other slot, too
		file := listedFile(t, base)
		found, err := store.LocalDisk.NewRecordSlots(filepath.Dir(base), &file).Load(nil)
		must(t, err)
		later := file
		later.Version++
		slots := store.LocalDisk.NewRecordSlots(filepath.Dir(base), &later)
		for range 2 {
			must(t, slots.WriteAndProtect(found.Body))
		}
		return
	} else if strings.HasSuffix(path, ".b") {
		return
	}
	version, body, err := store.LocalDisk.LoadRecord(path, 1<<20)
	must(t, err)
	must(t, store.LocalDisk.SaveRecord(path, version+1, body))
}

// raiseModelFormat rewrites a model file and its record in the format of a later program, with additional metadata.
func raiseModelFormat(t *testing.T, path string) {
	models, err := store.LocalDisk.OpenModelFolder(filepath.Dir(path))
	must(t, err)
	list, err := models.List()
	must(t, err)
	for _, m := range list {
		if models.Path(m.Version) != path {
			continue
		}
		tensors, meta, err := store.DecodeSafetensors(contents(t, path))
		must(t, err)
		tensors[0].Data[0]++ // the values of the vector may differ as well
		meta["format_version"] = "9"
		file, err := store.EncodeSafetensors(tensors, meta)
		must(t, err)
		must(t, models.Put(m.Version, m.Digest, true, file))
		return
	}
	t.Fatalf("%s is not listed", path)
}

func replace(t *testing.T, path, old, with string) {
	p := string(contents(t, path))
	if !strings.Contains(p, old) {
		t.Fatalf("no %q in %s", old, path)
	}
	put(t, path, []byte(strings.ReplaceAll(p, old, with)))
}

// TestFormats changes each file of the state folder to another format version. Then the coordinator must either read
// the file, or lose it without harm, or return an error that names a remedy.
func TestFormats(t *testing.T) {
	for i, format := range formats {
		if i%2 == 1 && testing.Short() {
			continue
		}
		t.Run(strings.ReplaceAll(format.pattern, "/", "|"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, _ := interrupted(t, "large")
				everyFileHasAFormat(t, f)
				found, err := filepath.Glob(f.coord.path(format.pattern))
				must(t, err)
				if len(found) == 0 {
					t.Fatalf("nothing fits %s", format.pattern)
				}
				for _, path := range found {
					format.renew(t, path)
				}
				if format.want == undecide {
					var state *runs.StateError
					if err := begin(t, f); !errors.As(err, &state) || !strings.Contains(err.Error(), format.says) ||
						!strings.Contains(state.Remedy, "--from") {
						t.Errorf("%v, want a StateError with %q", err, format.says)
					}
					return
				}
				f.coord.start()
				f.finished(time.Hour)
				for _, m := range events[aggregation.StateFileRecovered](f) {
					if m.Version != m.PreviousVersion {
						t.Errorf("the run went back: %+v", m)
					}
				}
			})
		})
	}
}

// everyFileHasAFormat checks that every file of the state folder matches an entry of formats.
func everyFileHasAFormat(t *testing.T, f *federation) {
	t.Helper()
	must(t, filepath.WalkDir(f.coord.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		for _, format := range formats {
			if fits, _ := filepath.Match(f.coord.path(format.pattern), path); fits {
				return nil
			}
		}
		t.Errorf("%s has no entry in formats: give it a version, and say what becomes of another one", path)
		return nil
	}))
}

// TestTaskEncoding checks the encoding of a task, which is part of the file formats. If it changes, the format versions
// must be raised.
func TestTaskEncoding(t *testing.T) {
	full := wire.Task{
		Name: "n", Features: []string{"a", "b"}, TargetColumn: "t", MinSamples: 3,
		Model: wire.ModelSpec{HiddenUnits: []uint32{2}, Outputs: 3, Activation: spec.ActivationReLU,
			Risk:    spec.LossSoftmax,
			HasBias: true, Ridge: 0.5},
		Training: wire.TrainingSettings{
			ExchangeKind: spec.ExchangeGradient, BatchSize: 4, LocalStepProbability: 0.25,
			GradientNoise: spec.GradientNoise{Law: spec.NoiseLaplace, Variance: 0.125}, StepSize: 2,
			StrongConvexity: 4, StepSizeDecayOffset: 8, NormalizesStepSize: true, StepTimeBudgetMillis: 5,
			MinLocalSteps: 6,
			MaxLocalSteps: 7,
		},
		Mixing: wire.MixingSettings{IntervalSteps: 1, SnapshotWaitMillis: 2, SnapshotRetryMillis: 3,
			LateSnapshotMillis: 4,
			SnapshotCodec:      spec.CodecBFloat16,
			IsUnsealed:         true,
			HasEndlessBlocks:   true},
		Standardization: wire.Standardization{Mean: []float64{1}, Scale: []float64{2}, Clip: 3},
	}
	const version2 = "01006e02000000010061010062010074010000000200000003000000020301000000000000e03f020400000000" +
		"0000000000d03f0000000000000040000000000000104000000000000020400105000000060000000700000003" +
		"00000000000000030000000e006772616469656e745f6e6f697365020900000002000000000000c03f06006d69" +
		"78696e670213000000010000000200000003000000040000000201010f007374616e64617264697a6174696f6e" +
		"022000000001000000000000000000f03f0100000000000000000000400000000000000840"
	if got := hex.EncodeToString(full.AppendEncoding(nil)); got != version2 {
		t.Errorf("a task is encoded as %s, want %s: raise taskVersion and recordVersion in disk.go, and then change "+
			"this text", got, version2)
	}
}
