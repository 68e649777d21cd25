package agentd

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/modelfile"
)

// TestHook checks that a hook command receives the description of the model in its environment. If the command fails or
// times out, the error must contain the output of the command.
func TestHook(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there is no sh")
	}
	dir := t.TempDir()
	m := &modelfile.Model{TaskName: "air", Run: 3, Version: 17}
	m.ParameterDigest[0] = 0xab
	run := func(most time.Duration, script string) string {
		if err := runModelHook(t.Context(), []string{"sh", "-c", script, "hook"}, most, dir, m); err != nil {
			return err.Error()
		}
		return "done"
	}
	file := filepath.Join(dir, "told")
	if got := run(time.Minute, `echo "$MODEL_FILE $MODEL_RUN/$MODEL_VERSION $MODEL_TASK $MODEL_HASH" >`+file); got != "done" {
		t.Error(got)
	}
	told, err := os.ReadFile(file)
	if want := modelfile.ActiveModelPath(dir) + " 3/17 air ab00"; err != nil || !strings.HasPrefix(string(told), want) {
		t.Errorf("%s, %v; want %s", told, err, want)
	}
	if got := run(time.Minute, "echo no room; exit 3"); got != "exit status 3: no room" {
		t.Error(got)
	}
	long := run(time.Minute, "head -c 100000 /dev/zero | tr '\\0' x; exit 1")
	if len(long) > 600 || !strings.HasPrefix(long, "exit status 1: xxx") {
		t.Errorf("%d bytes: %.100s", len(long), long)
	}
	if got := run(10*time.Millisecond, "exec sleep 600"); !strings.Contains(got, "killed after 10ms") {
		t.Error(got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := runModelHook(ctx, []string{"sh", "-c", "exec sleep 600"}, time.Minute, dir, m); err == nil {
		t.Error("the agent ends, and the hook goes on")
	}
}
