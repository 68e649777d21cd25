package coordinator_test

import (
	"archive/tar"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/coordinator/aggregation"
	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/internal/testkit/memory"
)

// TestBackup checks that agents follow a coordinator restored from a backup, although they have worked on later rounds
// since. The backup includes the applied task. The backup is restored over files of a coordinator that refused to start
// without its state.
func TestBackup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, 3, memory.Options{})
		f.cfg.Round.MaxAggregations, f.cfg.TaskVersion = 0, 4
		f.start()
		f.rounds(3)
		var backup bytes.Buffer
		models := filepath.Join(f.coord.dir, runs.ModelsDir, fmt.Sprint(present(t, f).Run))
		// file whose writing was not finished
		must(t, os.WriteFile(filepath.Join(models, ".fedmesh-tmp-A"), []byte("x"), 0o600))
		must(t, f.host.Backup(within(t, time.Minute), &backup))
		at := len(events[aggregation.ModelReady](f))
		control := coordinator.OperatorDecisions{Task: coordinator.AppliedTask{Version: 4,
			TaskYAML: []byte("task: {}\n")}}
		must(t, control.Save(f.coord.dir))
		f.rounds(at + 5)
		f.coord.stop()
		newest := present(t, f)

		f.coord.dir = t.TempDir()
		f.coord.start()
		_ = f.coord.behind(time.Minute) // wait until the coordinator refuses to start
		if files, err := os.ReadDir(f.coord.dir); err != nil || len(files) == 0 {
			t.Fatalf("the refused start left %v, %v", files, err)
		}
		list := filepath.Join(f.coord.dir, "agents.keys")
		must(t, os.WriteFile(list, []byte("x"), 0o600))
		order, err := runs.RestoreBackup(f.coord.dir, bytes.NewReader(backup.Bytes()))
		must(t, err)
		if _, err := os.Stat(list); err != nil {
			t.Errorf("the list of agents: %v", err)
		}
		was := present(t, f)
		if v := was.Plan.BaseModelVersion; order.Epoch != 2 || was.Run != newest.Run ||
			v >= newest.Plan.BaseModelVersion || v == 0 {
			t.Fatalf("restored is epoch %d model %d, the newest was %d", order.Epoch, v, newest.Plan.BaseModelVersion)
		}
		f.cfg.Round.MaxAggregations = int(newest.Plan.BaseModelVersion) + 2
		f.coord.start()
		f.finished(time.Hour)
		f.stop()
		if _, err := runs.RestoreBackup(f.coord.dir, bytes.NewReader(backup.Bytes())); err == nil ||
			!strings.Contains(err.Error(), "contains a run") {
			t.Errorf("into a folder that is in use: %v", err)
		}
	})
}

// TestForeignBackup checks that entries which do not belong in a backup are rejected, and that no file is written
// outside the folder.
func TestForeignBackup(t *testing.T) {
	for name, says := range map[string]string{
		"../escape": "unexpected file", "/etc/passwd": "unexpected file", "lock": "unexpected file",
		"models/../run.a": "unexpected file", "models/7/../../x": "unexpected file", "": "the backup is empty",
	} {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		if name != "" {
			must(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: 1, Typeflag: tar.TypeReg}))
			_, err := w.Write([]byte("x"))
			must(t, err)
		}
		must(t, w.Close())
		dir := filepath.Join(t.TempDir(), "new")
		if _, err := runs.RestoreBackup(dir, &b); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", name, err)
		}
	}
	other := filepath.Join(t.TempDir(), "letter.txt")
	must(t, os.WriteFile(other, []byte("x"), 0o600))
	if _, err := runs.RestoreBackup(filepath.Dir(other), strings.NewReader("no tar at all")); err == nil ||
		!strings.Contains(err.Error(), "is not a state folder") {
		t.Errorf("a folder with other files: %v", err)
	}
	if _, err := os.Stat(other); err != nil {
		t.Error(err)
	}
	if _, err := runs.RestoreBackup(t.TempDir(), strings.NewReader("no tar at all")); err == nil {
		t.Error("no tar is restored")
	}
}
