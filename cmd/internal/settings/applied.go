package settings

import (
	"bytes"
	"cmp"

	"github.com/fedmesh/fedmesh/cmd/internal/config"
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

// ReadTask reads the task of a file that Applied.Text has written, as it is announced; only how its agents mix is left
// out.
func ReadTask(path string) (wire.Task, error) {
	a := defaultApplied()
	err := config.Load(&a, config.Source{Path: path})
	return a.Task.Wire(false), err
}
