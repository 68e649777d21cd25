package agent_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/data"
)

// TestRowsAreLost has the disk lose rows that are too many for memory: the round is declined with that reason, and the
// next one has the rows again.
func TestRowsAreLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLogger(t, "a,b,y\n"+strings.Repeat("1,0,2\n0,1,-1\n1,1,1\n", 250_000))
		l.stop()
		folder := t.TempDir()
		c := data.Config{Source: data.CSV, CSV: l.path, Folder: folder}
		var err error
		if l.cfg.Data, err = c.Open(); err != nil {
			t.Fatal(err)
		}
		l.start()
		l.plays(1)
		if got := l.rows(); !strings.HasPrefix(got, "hello 750000, update 750000 of round 1") {
			t.Fatal(got)
		}
		lose(t, folder)
		l.plays(2)
		failed := factsOf[agent.TrainingFailed](l.scene)
		if len(failed) != 1 || failed[0].Round != 2 || !strings.Contains(failed[0].Err.Error(), "cannot be read") {
			t.Errorf("failed: %+v", failed)
		}
		l.plays(3)
		l.plays(4)
		if got := l.rows(); !strings.HasPrefix(got, "hello 750000, update 750000 of round 4") {
			t.Error(got)
		}
		loaded := factsOf[agent.DataLoaded](l.scene)
		if last := loaded[len(loaded)-1]; !strings.Contains(last.Renewed, "cannot be read") || last.Problem != nil {
			t.Errorf("%+v", last)
		}
	})
}

// lose cuts off a file of rows, which has no name but that of its descriptor.
func lose(t *testing.T, folder string) {
	t.Helper()
	all, err := filepath.Glob("/proc/self/fd/*")
	lost := 0
	for _, fd := range all {
		if name, _ := os.Readlink(fd); strings.HasPrefix(name, folder) {
			lost++
			err = errors.Join(err, os.Truncate(fd, 0))
		}
	}
	if err != nil || lost != 1 {
		t.Fatalf("%d files of rows in %s: %v", lost, folder, err)
	}
}
