package settings

import (
	"fmt"
	"io"

	"github.com/fedmesh/fedmesh/cmd/internal/config"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// taskFile is a task by itself, in the keys of coordinator.yaml.
type taskFile struct {
	Task Task `yaml:"task"`
}

// Validate reports every problem, by key.
func (f *taskFile) Validate() error {
	var c spec.Check
	f.Task.check(&c, false) // whether agents mix is none of the file's business
	return c.Err()
}

// CheckTask reports every problem of the task, and of nothing else, by key.
func (s *Coordinator) CheckTask() error {
	var c spec.Check
	s.Task.check(&c, s.Round.Algorithm == spec.FedDec)
	return c.Err()
}

// WriteTask writes the task for [ReadTask].
func (s *Coordinator) WriteTask(w io.Writer) error {
	if _, err := fmt.Fprintf(w, "# The task of the federation %s. On a device: agentd data check --task FILE\n",
		s.Federation); err != nil {
		return err
	}
	return config.Write(w, &taskFile{s.Task})
}

// ReadTask reads a file that WriteTask has written, as the task is announced; only how its agents mix is left out.
func ReadTask(path string) (wire.Task, error) {
	f := taskFile{Task: defaultTask()}
	err := config.Load(&f, config.Source{Path: path})
	return f.Task.Wire(false), err
}
