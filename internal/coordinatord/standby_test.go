package coordinatord

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/fedmesh/fedmesh/internal/config"
)

// TestWritable wants a list of agents that another coordinator's may replace, and nothing left behind.
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
