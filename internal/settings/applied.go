package settings

import (
	"bytes"
	"cmp"

	"github.com/fedmesh/fedmesh/internal/config"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/rollout"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// Applied is the part of the coordinator's configuration that is applied to a running federation: what is learned, and
// how. The file founds the first run with it; from then on it stands in the state folder.
type Applied struct {
	Task    Task           `yaml:"task"`
	Round   round.Config   `yaml:"round"`
	Mesh    Mesh           `yaml:"mesh"`
	Predict rollout.Config `yaml:"predict"`
}

// defaultApplied returns the defaults.
func defaultApplied() Applied {
	s := DefaultCoordinator()
	return s.Applied()
}

// Applied returns that part of the configuration.
func (s *Coordinator) Applied() Applied { return Applied{s.Task, s.Round, s.Mesh, s.Predict} }

// With returns the configuration with another such part.
func (s *Coordinator) With(a Applied) *Coordinator {
	with := *s
	with.Task, with.Round, with.Mesh, with.Predict = a.Task, a.Round, a.Mesh, a.Predict
	return &with
}

// Text writes it as YAML, for ReadApplied and [ReadTask].
func (a *Applied) Text() []byte {
	var b bytes.Buffer
	_ = config.Write(&b, a) // a buffer takes all
	return b.Bytes()
}

// ReadApplied reads the text of a file, which may be a whole coordinator.yaml: of that the other keys are only checked.
// Keys that are not there have their defaults. Every problem is reported with its line, as [config.Load] does.
func (s *Coordinator) ReadApplied(name string, text []byte) (Applied, error) {
	read := s.With(defaultApplied())
	err := config.Load(read, config.Source{Path: cmp.Or(name, "the task"), Text: text})
	return read.Applied(), err
}

// Validate reports every problem of the task, by key, and of nothing else: a device has no part in the rest.
func (a *Applied) Validate() error {
	var c spec.Check
	a.Task.check(&c, a.Round.Algorithm == spec.FedDec)
	return c.Err()
}

// taskFile is a coordinator.yaml, or a part of it, of which only the task is validated.
type taskFile Coordinator

// Validate reports every problem of the task, by key.
func (f *taskFile) Validate() error {
	a := (*Coordinator)(f).Applied()
	return a.Validate()
}

// ReadTask reads the task of a file as it is announced, without how its agents mix. The file is a coordinator.yaml or
// the output of `coordinator task show`, as for `coordinator task apply`.
func ReadTask(path string) (wire.Task, error) {
	f := taskFile(DefaultCoordinator())
	err := config.Load(&f, config.Source{Path: path})
	return f.Task.Wire(false), err
}

// Edit returns the applied part of a file with other values of some keys, written as on a command line. name names the
// file in errors.
func Edit(name string, text []byte, values map[string]string) ([]byte, error) {
	f := taskFile(DefaultCoordinator())
	if err := config.Load(&f, config.Source{Path: name, Text: text, Overrides: values}); err != nil {
		return nil, err
	}
	a := (*Coordinator)(&f).Applied()
	return a.Text(), nil
}
