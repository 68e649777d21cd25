package settings_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/fedmesh/fedmesh/internal/coordinatord/coordinatorsettings"
)

// TestLostList checks a missing list of agents in a federation that devices may join. If the list has never existed, it
// must be treated as empty. If the list was lost, the result must be an error, because access rules that are generated
// from an empty list would exclude every device.
func TestLostList(t *testing.T) {
	dir := t.TempDir()
	s := coordinatorsettings.Default()
	s.StateDir, s.Identity.AgentListFile = dir, filepath.Join(dir, "agents.keys")
	missing := func(what string, want bool) {
		t.Helper()
		_, err := s.CountAgents()
		_, err2 := s.AgentIDs()
		if errors.Is(err, fs.ErrNotExist) != want || errors.Is(err2, fs.ErrNotExist) != want {
			t.Errorf("%s: %v; %v", what, err, err2)
		}
	}
	missing("where nobody joins", true)
	s.Enrolment.Listen = "127.0.0.1:0"
	missing("at first", false)
	list, err := s.OpenAgentList()
	if err != nil || list.Len() != 0 {
		t.Fatal(list, err)
	}
	if err := list.Close(); err != nil {
		t.Fatal(err)
	}
	missing("once opened", false)
	if err := os.Remove(s.Identity.AgentListFile); err != nil {
		t.Fatal(err)
	}
	missing("when it is gone", true)
	if _, err := s.OpenAgentList(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("opened when it is gone: %v", err)
	}
}
