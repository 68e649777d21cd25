package coordinatord

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/fedmesh/fedmesh/internal/config"
)

// TestWritable checks that the list of agents must be writable and that no temporary file is left.
func TestWritable(t *testing.T) {
	dir := t.TempDir()
	if err := checkAgentListWritable(filepath.Join(dir, "agents.keys")); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	var wrong *config.Error
	if err := checkAgentListWritable(filepath.Join(dir, "missing", "agents.keys")); !errors.As(err, &wrong) ||
		wrong.Hint == "" {
		t.Errorf("a folder that is not there: %v", err)
	}
}
