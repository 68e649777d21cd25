package agentd

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/modelfile"
	"github.com/fedmesh/fedmesh/store"
)

// configureModelLockAndHook sets the lock that guards stored models, and the hook command that runs for each new model.
func configureModelLockAndHook(cfg *agent.Config, s *settings.Agent) {
	dir := cfg.StateDir
	cfg.Predict.LockKeptModels = func() (func() error, error) {
		if err := store.LocalDisk.MakeDir(modelfile.ModelLockDir(dir)); err != nil {
			return nil, err
		}
		lock, err := store.LockStateFolder(modelfile.ModelLockDir(dir))
		if err != nil {
			return nil, err
		}
		return lock.Unlock, nil
	}
	if hook := s.Predict.ModelHookCommand; len(hook) > 0 {
		cfg.Predict.OnModelActivated = func(ctx context.Context, m *modelfile.Model) error {
			return runModelHook(ctx, hook, s.Predict.ModelHookTimeout, dir, m)
		}
	}
}

// maxHookOutputBytes is the maximum length of the hook output in an error.
const maxHookOutputBytes = 500

// runModelHook runs the hook command with a model's description in its environment.
func runModelHook(ctx context.Context, command []string, most time.Duration, dir string, m *modelfile.Model) error {
	path, err := filepath.Abs(modelfile.ActiveModelPath(dir))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.WaitDelay = time.Second // time limit for child processes that keep the output open
	cmd.Env = append(os.Environ(), "MODEL_FILE="+path, fmt.Sprintf("MODEL_RUN=%d", m.Run),
		fmt.Sprintf("MODEL_VERSION=%d", m.Version), "MODEL_HASH="+hex.EncodeToString(m.ParameterDigest[:]),
		"MODEL_TASK="+m.TaskName)
	var out cappedOutput
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	switch {
	case err == nil:
		return nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = fmt.Errorf("the command in predict.hook was killed after %s: increase predict.hook_time, or run the "+
			"work in the background",
			most)
	}
	if text := strings.TrimSpace(string(out)); text != "" {
		err = fmt.Errorf("%w: %s", err, text)
	}
	return err
}

// cappedOutput is a writer that keeps the first maxHookOutputBytes bytes and discards the rest.
type cappedOutput []byte

func (h *cappedOutput) Write(p []byte) (int, error) {
	*h = append(*h, p[:min(len(p), maxHookOutputBytes-len(*h))]...)
	return len(p), nil
}
