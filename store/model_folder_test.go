package store

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func modelFile(t *testing.T, note string) []byte {
	t.Helper()
	p, err := EncodeSafetensors([]Tensor{{"w", "F32", []int{2}, make([]byte, 8)}}, map[string]string{"note": note})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func mustOpenModels(t *testing.T) *ModelFolder {
	t.Helper()
	m, err := LocalDisk.OpenModelFolder(filepath.Join(t.TempDir(), "models"))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func listed(t *testing.T, m *ModelFolder) (versions []uint64) {
	t.Helper()
	infos, err := m.List()
	if err != nil {
		t.Error(err)
	}
	for _, info := range infos {
		versions = append(versions, info.Version)
	}
	return versions
}

func TestModels(t *testing.T) {
	m := mustOpenModels(t)
	if _, err := m.Latest(); !errors.Is(err, ErrNoModel) {
		t.Errorf("Latest of none: %v, want ErrNoModel", err)
	}
	if _, err := m.Get(1); !errors.Is(err, ErrNoModel) {
		t.Errorf("Get of none: %v, want ErrNoModel", err)
	}
	for _, v := range []uint64{10, 2, 1_000_000_000, 3} {
		for range 2 {
			if err := m.Put(v, [32]byte{byte(v)}, v%2 == 0, modelFile(t, fmt.Sprint(v))); err != nil {
				t.Fatal(err)
			}
		}
	}
	mustWrite(t, filepath.Join(m.dir, "model-7.safetensors"), nil) // this is not a valid name of a model file
	infos, err := m.List()
	if err != nil || len(infos) != 4 {
		t.Fatalf("listed %v, %v", infos, err)
	}
	for i, v := range []uint64{2, 3, 10, 1_000_000_000} {
		want := modelFile(t, fmt.Sprint(v))
		info := infos[i]
		if info.Version != v || info.Digest != [32]byte{byte(v)} || info.Size != int64(len(want)) ||
			info.Metadata["note"] != fmt.Sprint(v) {
			t.Errorf("info %+v of version %d", info, v)
		}
		if got, err := m.Get(v); err != nil || !bytes.Equal(got, want) {
			t.Errorf("version %d: %q, %v", v, got, err)
		}
	}
	if latest, err := m.Latest(); err != nil || latest.Version != 1_000_000_000 {
		t.Errorf("latest %+v, %v", latest, err)
	}
	if _, err := os.Stat(filepath.Join(m.dir, "model-00000010.safetensors")); err != nil {
		t.Error(err)
	}
	if err := m.Put(10, [32]byte{99}, true, modelFile(t, "other")); !errors.Is(err, ErrDigestConflict) {
		t.Errorf("another digest: %v, want ErrConflict", err)
	}
	if err := m.Put(11, [32]byte{11}, true, []byte("no model")); err == nil ||
		!strings.Contains(err.Error(), "version 11") {
		t.Errorf("not a safetensors file: %v", err)
	}
}

func TestModelsPrune(t *testing.T) {
	m := mustOpenModels(t)
	if err := m.Prune(1, 9); err != nil {
		t.Errorf("Prune of none: %v", err)
	}
	for v := range uint64(5) {
		if err := m.Put(v, [32]byte{byte(v)}, true, modelFile(t, "")); err != nil {
			t.Fatal(err)
		}
	}
	for _, gone := range []uint64{1, 4} { // as after a crash between writing the record and writing the model
		if err := os.Remove(m.Path(gone)); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Put(4, [32]byte{44}, true, modelFile(t, "")); err != nil {
		t.Errorf("Put over a record without a model: %v", err)
	}
	if err := m.Prune(0, 4); err == nil {
		t.Error("Prune(0) succeeded")
	}
	for _, tc := range []struct {
		keep    int
		version uint64
		want    []uint64
	}{{9, 4, []uint64{0, 2, 3, 4}}, {4, 4, []uint64{0, 2, 3, 4}}, {3, 4, []uint64{2, 3, 4}}, {1, 2, []uint64{2, 3, 4}},
		{1, 3, []uint64{3, 4}}, {1, 4, []uint64{4}}} {
		if err := m.Prune(tc.keep, tc.version); err != nil {
			t.Fatal(err)
		}
		if got := listed(t, m); !slices.Equal(got, tc.want) {
			t.Errorf("Prune(%d, %d) left %v, want %v", tc.keep, tc.version, got, tc.want)
		}
	}
	if got := names(t, m.dir); !slices.Equal(got, []string{"model-00000004.record", "model-00000004.safetensors"}) {
		t.Errorf("folder holds %v", got)
	}
}

// TestModelsSetAside checks that a renamed model keeps its content and is ignored by all methods.
func TestModelsSetAside(t *testing.T) {
	m := mustOpenModels(t)
	for round := 1; round <= 2; round++ {
		if err := m.Put(4, [32]byte{byte(round)}, true, modelFile(t, fmt.Sprint(round))); err != nil {
			t.Fatal(err)
		}
		if err := m.Put(4, [32]byte{99}, true, modelFile(t, "other")); !errors.Is(err, ErrDigestConflict) {
			t.Errorf("another digest: %v, want ErrConflict", err)
		}
		mustWrite(t, modelRecordPath(m.Path(4)), []byte("rubbish"))
		if err := m.Put(4, [32]byte{byte(round)}, true, modelFile(t, "")); !errors.Is(err, ErrDigestConflict) {
			t.Errorf("a model whose record cannot be read: %v, want ErrConflict", err)
		}
		aside, err := m.SetAsideModel(4)
		want := []string{fmt.Sprintf("model-00000004.aside-%d.safetensors", round),
			fmt.Sprintf("model-00000004.aside-%d.record", round)}
		if err != nil || len(aside) != 2 || filepath.Base(aside[0]) != want[0] || filepath.Base(aside[1]) != want[1] {
			t.Fatalf("%v, %v; want %v", aside, err, want)
		}
		if !bytes.Equal(mustRead(t, aside[0]), modelFile(t, fmt.Sprint(round))) {
			t.Error("a model that was set aside has another content")
		}
		if versions := listed(t, m); len(versions) != 0 {
			t.Errorf("listed %v, want none", versions)
		}
	}
	if aside, err := m.SetAsideModel(4); err != nil || aside != nil {
		t.Errorf("of a model that is not there: %v, %v", aside, err)
	}
	if err := os.RemoveAll(m.dir); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Versions(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without the folder: %v, want not exist", err)
	}
}

// TestModelsDamage flips each byte of both files of a model and truncates both files to each length. Get must never
// return a wrong model, and List must still return the undamaged model.
func TestModelsDamage(t *testing.T) {
	m := mustOpenModels(t)
	for v := range uint64(2) {
		if err := m.Put(v, [32]byte{byte(v)}, true, modelFile(t, "")); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{m.Path(1), modelRecordPath(m.Path(1))} {
		good := mustRead(t, path)
		for i := range good {
			flipped := bytes.Clone(good)
			flipped[i] ^= 1
			for _, damaged := range [][]byte{flipped, good[:i]} {
				mustWrite(t, path, damaged)
				var corrupt *CorruptError
				if p, err := m.Get(1); !errors.As(err, &corrupt) {
					t.Fatalf("%s damaged at byte %d: %q, %v", path, i, p, err)
				}
				infos, err := m.List()
				if len(infos) == 0 || infos[0].Version != 0 || len(infos) == 2 && err != nil {
					t.Fatalf("%s damaged at byte %d: listed %v, %v", path, i, infos, err)
				}
				if _, latest := m.Latest(); (latest == nil) != (err == nil) {
					t.Fatalf("%s damaged at byte %d: Latest says %v, List %v", path, i, latest, err)
				}
			}
		}
		mustWrite(t, path, good)
	}
	if err := os.Remove(modelRecordPath(m.Path(1))); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Get(1); !errors.Is(err, ErrNoRecord) {
		t.Errorf("a model without its record: %v", err)
	}
}

// TestHourly checks that Prune also keeps the newest model of each of the last hours with models. The error for a
// removed version must list the versions on disk.
func TestHourly(t *testing.T) {
	dir := t.TempDir()
	models, err := LocalDisk.OpenModelFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	for v := range uint64(12) { // five models per hour; hours 1 to 3 have none
		if err := models.Put(v, [32]byte{byte(v)}, false, modelFile(t, fmt.Sprint(v))); err != nil {
			t.Fatal(err)
		}
		hour := v / 5
		if hour > 0 {
			hour += 3
		}
		made := at.Add(time.Duration(hour)*time.Hour + time.Duration(v%5)*time.Minute)
		if err := os.Chtimes(models.Path(v), made, made); err != nil {
			t.Fatal(err)
		}
	}
	for n, want := range map[int][]uint64{1: {11}, 2: {9, 11}, 3: {4, 9, 11}, 24: {4, 9, 11}} {
		if got, err := models.NewestVersionPerHour(n); err != nil || !slices.Equal(got, want) {
			t.Errorf("of %d hours %v, %v; want %v", n, got, err, want)
		}
	}
	hourly, err := models.NewestVersionPerHour(2)
	if err == nil {
		err = models.Prune(2, 11, hourly...)
	}
	if got, listErr := models.Versions(); err != nil || listErr != nil || !slices.Equal(got, []uint64{9, 10, 11}) {
		t.Errorf("%v, %v, %v", got, err, listErr)
	}
	if _, err := models.Get(3); !errors.Is(err, ErrNoModel) || !strings.HasSuffix(err.Error(),
		"; available versions: 9 to 11") {
		t.Error(err)
	}
}
