package setup

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/fedmesh/fedmesh/internal/config"
	"github.com/fedmesh/fedmesh/spec"
)

// DiscoveredTask is the task that `agentd discover` proposes for the sensors of a site.
type DiscoveredTask struct {
	Grid     spec.TimeGrid      `yaml:"grid"`
	Inputs   []spec.InputSeries `yaml:"inputs"`
	Features []string           `yaml:"features"`
	Target   string             `yaml:"target"`
}

// IsDiscoveredTask reports whether path names a file that `agentd discover` has written, not a CSV file.
func IsDiscoveredTask(path string) bool {
	return strings.HasSuffix(path, ".yaml") || strings.HasSuffix(path, ".yml")
}

// ReadDiscoveredTask reads the task from a file that `agentd discover` has written. features and target replace the
// proposed ones if they are not empty.
func ReadDiscoveredTask(path string, features []string, target string) (*DiscoveredTask, error) {
	var file struct {
		Task DiscoveredTask `yaml:"task"`
	}
	if err := config.Load(&file, config.Source{Path: path}); err != nil {
		return nil, err
	}
	t := &file.Task
	if len(features) > 0 {
		t.Features = features
	}
	t.Target = cmp.Or(target, t.Target)
	if len(t.Inputs) == 0 {
		return nil, fmt.Errorf("%s has no task.inputs: use the file coordinator.discovered.yaml that `agentd discover "+
			"--write` has written, or a CSV file", path)
	}
	var problems spec.ProblemList
	recipe := spec.RowRecipe{Grid: t.Grid, Inputs: t.Inputs}.WithDefaults()
	recipe.Check(&problems, "task")
	if problems.ProblemCount() == 0 {
		recipe.CheckColumns(&problems, "task", t.Features, t.Target)
	}
	if err := problems.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}
